from __future__ import annotations

import json
import pathlib

import pytest

from medteb_mteb.folders import FolderError
from medteb_mteb.validate import Sources, read_material
from medteb_mteb.validate import slices as module
from medteb_mteb.validate.clusters import mean_of_queries
from medteb_mteb.validate.slices import slices


def write_jsonl(path, rows):
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_slices_are_all_queries_and_give_back_the_score(look, folder, write_run, monkeypatch):
    runs = [write_run("run", "npu", range(7))]
    finding = look(slices, runs=runs)
    assert (finding.verdict, finding.numbers["queries of the smallest slice"]) == ("warning", 3)
    sizes = [int(row[2]) for row in finding.table.rows]
    assert sizes == [3, 3, 3, 3]
    scores = [float(row[3].partition(" ")[0]) for row in finding.table.rows]
    assert scores[0] > scores[-1] == 0  # the run lacks the longest queries
    material = read_material(folder, Sources(runs=runs))
    mean = sum(one.ndcg for one in material.scores["run"].values()) / 12
    assert sum(s * n for s, n in zip(scores, sizes, strict=True)) / 12 == pytest.approx(mean, abs=1e-4)
    monkeypatch.setattr(module, "MIN_SLICE_QUERIES", 3)
    assert look(slices, runs=[write_run("steady", "npu")]).verdict == "ok"


def test_queries_of_one_length_are_one_slice(look, folder):
    rows = [f'{{"_id": "q{i}", "text": "问题{i:02d}"}}' for i in range(12)]
    (folder / "queries.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    finding = look(slices)
    assert [row[1:3] for row in finding.table.rows] == [("4 to 4 characters", "12")]


def departments(folder, clusters=12):
    """Gives the queries a department, and texts of which some are near-duplicates."""
    rows = [
        {
            "_id": f"q{i}",
            "text": "".join(chr(0x4E00 + 97 * (i % clusters) + 7 * j) for j in range(10))
            + "呢" * (i // clusters),
            "metadata": {"department": "儿科" if i < 6 else "内科"},
        }
        for i in range(12)
    ]
    write_jsonl(folder / "queries.jsonl", rows)


def test_a_department_on_which_a_run_fails_is_named(look, folder, write_run, monkeypatch):
    departments(folder)
    monkeypatch.setattr(module, "MIN_SLICE_QUERIES", 3)
    # The run has the positives of the first six first, and of the others last or not at all.
    run = json.loads(pathlib.Path(write_run("run", "pnu", range(6))).read_text())
    run |= {f"q{i}": {f"n{i}": 2.0, f"p{i}": 1.0} for i in (6, 7)}
    path = folder.parent / "uneven.json"
    path.write_text(json.dumps(run))
    finding = look(slices, runs=[str(path)], by=["department"])
    assert finding.verdict == "warning"
    assert "most of all uneven on department: " in finding.reason
    rows = {row[1]: row for row in finding.table.rows}
    assert rows["department: 儿科"][2:4] == ("6", "1.0000 [1.0000, 1.0000]")
    alone = look(slices, runs=[str(path)])
    assert float(rows["department: 内科"][5]) < 0.01
    assert len(finding.table.rows) == len(alone.table.rows) + 2


def test_a_field_that_no_query_has_is_refused(look, folder):
    departments(folder)
    with pytest.raises(FolderError, match="no query has a field 'ward'; the fields are department"):
        look(slices, by=["ward"])


def test_near_duplicates_are_one_question_in_the_intervals(folder, write_run):
    scores = {f"q{i}": float(i % 2) for i in range(12)}
    departments(folder)
    apart = mean_of_queries(read_material(folder, Sources()), scores)
    departments(folder, clusters=2)
    material = read_material(folder, Sources())
    together = mean_of_queries(material, scores)
    assert (len(set(material.clusters.values())), together.value) == (2, apart.value)
    assert together.high - together.low == 1.0  # two questions, one of them answered
    assert apart.high - apart.low < 1.0
