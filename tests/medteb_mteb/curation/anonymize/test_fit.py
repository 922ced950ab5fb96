from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from medteb_mteb.curation.anonymize import fit as module
from medteb_mteb.curation.anonymize.bare_names import FEATURES
from medteb_mteb.curation.anonymize.evaluate import parse_marked


@pytest.mark.thorough
def test_weights_separate_names_from_words():
    marked = [
        parse_marked(f"昨天[[NAME:{name}]]来复查，高血压稳定") for name in ("陈晓燕", "葛小军", "何秀兰")
    ]
    weights = module.fit(marked, ["高血压患者应低盐饮食，何时复查都方便"] * 20)
    assert list(weights) == list(FEATURES)
    assert weights["gain"] > 0
    assert weights == module.fit(marked, ["高血压患者应低盐饮食，何时复查都方便"] * 20)


def test_newton_finds_a_zero_of_the_gradient():
    drawn = np.random.default_rng(0)
    rows = np.column_stack([np.ones(400), drawn.normal(size=(400, 3))])
    labels = (drawn.random(400) < 1 / (1 + np.exp(-rows @ np.array([-1, 2, 0, -1])))).astype(float)
    weights = module._newton(rows, labels)
    left = rows.T @ (labels - 1 / (1 + np.exp(-rows @ weights))) - module.RIDGE * np.array([0, *weights[1:]])
    assert np.abs(left).max() < 1e-4
    np.testing.assert_allclose(weights, [-1, 2, 0, -1], atol=0.5)


def test_the_command_writes_weights(tmp_path, monkeypatch):
    (tmp_path / "marked.txt").write_text("昨天[[NAME:陈晓燕]]来复查\n", encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "高血压"}) + "\n", encoding="utf-8")
    out = tmp_path / "weights.json"
    paths = [str(tmp_path / "marked.txt"), "--texts", str(tmp_path / "texts.jsonl"), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["fit", *paths])
    module.main()
    assert json.loads(out.read_text(encoding="utf-8"))["weights"].keys() == set(FEATURES)
