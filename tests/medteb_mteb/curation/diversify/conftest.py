"""Texts of a few kinds, and vectors of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

PARTS = (
    ("糖尿病", "高血压", "感冒", "胃炎", "骨折"),
    ("怎么治疗", "吃什么好", "会传染吗"),
    ("", "？", "请问医生"),
)


@pytest.fixture
def source(tmp_path):
    """90 texts of a few kinds."""
    file = tmp_path / "raw.jsonl"
    texts = [f"{PARTS[0][i % 5]}{PARTS[1][i % 3]}{PARTS[2][i // 15 % 3]}" for i in range(90)]
    rows = [{"_id": f"t{i}", "text": text} for i, text in enumerate(texts)]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file


@pytest.fixture
def vectors(tmp_path):
    rng = np.random.default_rng(0)
    array = rng.standard_normal((12, 16))[rng.integers(0, 12, 90)] + 0.3 * rng.standard_normal((90, 16))
    np.save(tmp_path / "vectors.npy", array.astype(np.float32))
    return tmp_path / "vectors.npy"
