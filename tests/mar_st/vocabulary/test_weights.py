"""Weights in several files: the listing names files of its folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mar_st.vocabulary.errors import VocabularyError
from mar_st.vocabulary.weights import weight_files

if TYPE_CHECKING:
    from pathlib import Path


def test_weight_files_outside_the_folder_are_refused(tmp_path: Path) -> None:
    listing = tmp_path / "model.safetensors.index.json"
    listing.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    assert [path.name for path in weight_files(tmp_path)] == ["model-1.safetensors", "model-2.safetensors"]
    listing.write_text(json.dumps({"weight_map": {"a": "x/../../../ESCAPED"}}))
    with pytest.raises(VocabularyError, match="ESCAPED"):
        weight_files(tmp_path)
