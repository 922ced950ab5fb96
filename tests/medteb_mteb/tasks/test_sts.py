"""MedTEBSTS: the Pearson correlation of cosines and labels."""

from __future__ import annotations

import json

import mteb
import numpy as np
import pytest
from tests.medteb_mteb.tasks.recorder import Recorder, evaluate, vectors

from medteb_mteb.editions import write_manifest


def test_sts_is_the_pearson_of_the_cosine(data_root):
    model = Recorder()
    result = evaluate(mteb.get_task("MedTEBSTS"), model)
    texts1, texts2 = model.seen[0][2], model.seen[1][2]
    rows = [json.loads(line) for line in (data_root / "MedTEBSTS/test.jsonl").read_text("utf-8").splitlines()]
    assert texts1 == [row["sentence1"] for row in rows]

    a, b = vectors(texts1), vectors(texts2)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    expected = np.corrcoef(cosines, [row["score"] for row in rows])[0, 1]
    assert result.get_score() == pytest.approx(expected, abs=1e-4)


def test_exchanged_labels_give_the_opposite_score(data_root):
    before = evaluate(mteb.get_task("MedTEBSTS"), Recorder()).get_score()
    file = data_root / "MedTEBSTS" / "test.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    exchanged = [row | {"score": 1 - row["score"]} for row in rows]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in exchanged), "utf-8")
    write_manifest(file.parent, task="MedTEBSTS", name="mini", version="2", licence="mit", counts={})
    assert evaluate(mteb.get_task("MedTEBSTS"), Recorder()).get_score() == pytest.approx(-before, abs=1e-5)
