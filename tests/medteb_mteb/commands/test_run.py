from __future__ import annotations

import json

import mteb


def test_a_task_that_mteb_averages_is_run_as_its_parts(medteb, data_root, tmp_path, monkeypatch):
    task = mteb.get_task("CQADupstackRetrieval")
    assert task.is_aggregate
    parts = [mteb.get_task("MedTEBRetrieval"), mteb.get_task("MedTEBReranking")]
    monkeypatch.setattr(task, "tasks", parts)
    of_name = mteb.get_task
    monkeypatch.setattr(mteb, "get_task", lambda name: task if name == task.metadata.name else of_name(name))
    code, out, err = medteb(
        "run", "-t", task.metadata.name, "-m", "bm25-char-bigram", "-q", "--json",
        "--output-folder", tmp_path / "out",
    )  # fmt: skip
    assert code == 0, err
    report = json.loads(out)
    assert report["tasks"] == ["MedTEBRetrieval", "MedTEBReranking"]
    scores = [cell["score"] for cell in report["rows"][0]["scores"].values()]
    assert report["rows"][0]["averages"] == {"CQADupstackRetrieval": sum(scores) / 2}
