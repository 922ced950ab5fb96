"""The corrected edition of an audit: the benchmark with its qrels corrected by labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medteb_mteb.curation.edition.corrected import write_corrected
from medteb_mteb.curation.edition.croissant import croissant
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.audit import read_benchmark
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.editions import load_edition, verify
from medteb_mteb.folders import inspect_folder, read_folder, task_from_folder

LABELS = [
    Label("q1", "d1", 1),  # released and confirmed
    Label("q1", "d6", 1),  # missed
    Label("q1", "d5", None, "judges disagree"),
    Label("q2", "d2", 0),  # released, not confirmed
    Label("q2", "d1", 0),
    Label("q3", "d4", 0),  # the last positive of its query
]


@pytest.fixture(params=["Retrieval", "Reranking"])
def benchmark(request, make_folder):
    folder = make_folder(request.param)
    if request.param == "Reranking":
        rows = [{"query-id": f"q{i}", "corpus-ids": ["d5", "d4", "d3", "d2", "d1"]} for i in (1, 2, 3)]
        (folder / "top_ranked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_benchmark(folder)


def correct(benchmark, out, labels=LABELS, **options):
    return write_corrected(benchmark, labels, out, **{"name": "clinic", "provenance": {}, **options})


def test_missed_positives_are_added_and_refuted_ones_removed(benchmark, tmp_path):
    before = (benchmark.folder / "qrels" / "test.tsv").read_bytes()
    edition = correct(benchmark, tmp_path / "out")
    verify(edition)
    data = read_folder(tmp_path / "out").retrieval
    # `d6` is not in the list of candidates, and nobody judged `d3` of `q2`.
    added = {} if benchmark.candidates else {"d6": 1}
    assert data.qrels == {"q1": {"d1": 1, **added}, "q2": {"d3": 1}}
    assert [row["id"] for row in data.queries] == ["q1", "q2"]
    assert len(data.corpus) == 6
    assert edition.extra["corrected"] == {"added": len(added), "removed": 2, "queries left out": 1}
    assert edition.counts == {"queries": 2, "corpus": 6, "qrels": 2 + len(added)}
    assert ("top_ranked" in inspect_folder(tmp_path / "out").tables) == bool(benchmark.candidates)
    assert (benchmark.folder / "qrels" / "test.tsv").read_bytes() == before


def test_false_positives_stay_if_only_positives_are_added(benchmark, tmp_path):
    edition = correct(benchmark, tmp_path / "out", keep_false_positives=True)
    qrels = read_folder(tmp_path / "out").retrieval.qrels
    assert all(qrels[query].keys() >= row.keys() for query, row in benchmark.qrels.items())
    assert (edition.extra["corrected"]["removed"], edition.extra["corrected"]["queries left out"]) == (0, 0)


def test_the_judges_are_added_to_the_benchmarks_own_provenance(benchmark, tmp_path):
    own = {"schema_version": 1, "judges": [{"name": "first"}], "sources": [{"name": "huatuo"}]}
    (benchmark.folder / "provenance.json").write_text(json.dumps(own))
    added = {"judges": [{"name": "second"}], "consensus": "none"}
    edition = correct(benchmark, tmp_path / "out", provenance=added)
    content = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert content == {**own, "judges": [{"name": "first"}, {"name": "second"}]}
    assert json.loads((tmp_path / "out" / "croissant.json").read_text("utf-8")) == croissant(edition)


def test_the_task_keeps_its_settings(benchmark, tmp_path):
    settings = {"name": "Clinic", "prompt": "检索", "main_score": "recall_at_100", "domains": ["Medical"]}
    header = json.dumps({"language": "pl", "medteb": settings})
    (benchmark.folder / "README.md").write_text(f"---\n{header}\n---\n")
    correct(benchmark, tmp_path / "out")
    before, after = (task_from_folder(folder).metadata for folder in (benchmark.folder, tmp_path / "out"))
    assert after.name == "Clinic"
    for key in ("name", "type", "prompt", "main_score", "eval_langs", "domains"):
        assert getattr(after, key) == getattr(before, key)


def test_a_benchmark_in_the_working_folder_is_named_after_it(benchmark, tmp_path, monkeypatch):
    monkeypatch.chdir(benchmark.folder)
    edition = correct(read_benchmark(Path()), tmp_path / "out")
    assert edition.task == benchmark.folder.name


def test_an_unchanged_corrected_edition_is_replaced_and_a_changed_one_is_not(benchmark, tmp_path):
    first = correct(benchmark, tmp_path / "out")
    second = correct(benchmark, tmp_path / "out", keep_false_positives=True)
    assert second.extra["corrected"]["removed"] == 0 < first.extra["corrected"]["removed"]
    (tmp_path / "out" / "README.md").write_text("Mine.")
    with pytest.raises(BuildError, match="is not empty; give a new folder"):
        correct(benchmark, tmp_path / "out")
    assert load_edition(tmp_path / "out") == second


def test_labels_that_refute_every_positive_are_refused(benchmark, tmp_path):
    none = [Label(query, document, 0) for query, row in benchmark.qrels.items() for document in row]
    with pytest.raises(BuildError, match="No query has a positive that the judges confirm"):
        correct(benchmark, tmp_path / "out", none)
    assert not (tmp_path / "out").exists()


def test_only_a_new_or_empty_folder_is_written(benchmark, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    for name, message in (("full", "is not empty; give a new folder"), ("file", "is not a folder")):
        with pytest.raises(BuildError, match=message):
            correct(benchmark, tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.part").mkdir()
    (tmp_path / "empty.part" / "stale.jsonl").touch()  # of a killed run
    assert "stale.jsonl" not in correct(benchmark, tmp_path / "empty").files
    assert not (tmp_path / "empty.part").exists()


def test_a_folder_that_cannot_be_written_is_named(benchmark, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match=r"file/out\.part.* cannot be written \(Not a directory\)"):
        correct(benchmark, tmp_path / "file" / "out")
