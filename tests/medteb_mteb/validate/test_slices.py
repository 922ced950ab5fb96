from __future__ import annotations

import pytest

from medteb_mteb.validate import Sources, read_material
from medteb_mteb.validate import slices as module
from medteb_mteb.validate.slices import slices


def test_slices_are_all_queries_and_give_back_the_score(look, folder, write_run, monkeypatch):
    runs = [write_run("run", "npu", range(7))]
    found = look(slices, runs=runs)
    assert (found.verdict, found.numbers["queries of the smallest slice"]) == ("warning", 4)
    sizes = [int(row[2]) for row in found.table.rows]
    assert sizes == [4, 4, 4]
    scores = [float(row[3].partition(" ")[0]) for row in found.table.rows]
    assert scores[0] > scores[-1] == 0  # the run lacks the longest queries
    material = read_material(folder, Sources(runs=runs))
    mean = sum(one.ndcg for one in material.scores["run"].values()) / 12
    assert sum(s * n for s, n in zip(scores, sizes, strict=True)) / 12 == pytest.approx(mean, abs=1e-4)
    monkeypatch.setattr(module, "FEWEST", 4)
    assert look(slices, runs=runs).verdict == "ok"


def test_queries_of_one_length_are_one_slice(look, folder):
    rows = [f'{{"_id": "q{i}", "text": "问题{i:02d}"}}' for i in range(12)]
    (folder / "queries.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    found = look(slices)
    assert [row[1:3] for row in found.table.rows] == [("4 to 4 characters", "12")]
