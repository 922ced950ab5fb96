from __future__ import annotations

import json
import sys

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from benchmarks import context_means
from mar_st.model.encoders import load_encoder
from tests.conftest import QUERIES, write_jsonl, write_retrieval
from tests.mar_st.conftest import make_config, make_tokenizer


@pytest.mark.thorough
def test_a_row_is_written_for_each_number_of_layers_and_texts(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    config = make_config("bert")
    config.num_hidden_layers = 3
    modules = [*load_encoder((config, make_tokenizer("query")), "query", pooling="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "model"))
    (tmp_path / "task").mkdir()
    write_retrieval(tmp_path / "task")
    texts = write_jsonl(tmp_path / "texts.jsonl", [{"text": text * 3} for text in QUERIES.values()])
    out = tmp_path / "rows.jsonl"
    options = ["--model", tmp_path / "model", "--texts", texts, "--task", tmp_path / "task", "--out", out]
    sizes = ["--layers", 1, 2, "--numbers", 2, 3, "--pairs", 5]
    monkeypatch.setattr(sys, "argv", ["context_means.py", *map(str, [*options, *sizes])])
    context_means.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(0 < row["pairs"] <= 5 for row in rows if row["pairs"])
    paired = [(row["layers"], row["texts"]) for row in rows if row["pairs"]]
    assert paired == [(1, 2), (2, 2), (1, 3), (2, 3)]
    rows = [row for row in rows if not row["pairs"]]
    settings = [(row["layers"], row["texts"], row["positions"]) for row in rows]
    copied = [(1, 0, True), (2, 0, True)]
    assert settings == [
        *copied,
        (1, 2, True),
        (2, 2, True),
        (1, 3, True),
        (1, 3, False),
        (2, 3, True),
        (2, 3, False),
    ]
    assert rows[5]["cosine"] != rows[4]["cosine"]
    assert max(row["cosine"] for row in rows) <= 1.0001
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + len(paired)
