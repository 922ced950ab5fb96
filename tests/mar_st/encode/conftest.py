"""A small MAR, a corpus, and the files of its encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mar_st import MAR
from tests.conftest import write_jsonl
from tests.mar_st.encode.corpora import encode, files, rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.mar_st.conftest import make_config, make_tokenizer

    torch.manual_seed(0)
    mar = MAR.from_encoders(
        (make_config("gte"), make_tokenizer("query")),
        (make_config("qwen3", 64), make_tokenizer("document")),
        dim=32,
        device="cpu",
    )
    folder = tmp_path_factory.mktemp("model") / "mar"
    mar.save_pretrained(str(folder))
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "corpus.jsonl", rows(100))


@pytest.fixture
def whole(model: Path, corpus: Path, tmp_path: Path) -> dict[str, str]:
    return files(encode(model, corpus, tmp_path / "whole").path)
