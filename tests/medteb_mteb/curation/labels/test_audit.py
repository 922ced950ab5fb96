from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.edition.corrected import write_corrected
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.audit import audit, read_benchmark
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.editions.croissant import croissant
from medteb_mteb.folders import inspect_folder

QRELS = {"q0": ["d0", "d1"], "q1": ["d2"], "q2": ["d3"]}
LABELS = [
    Label("q0", "d0", 1),  # released and confirmed
    Label("q0", "d1", 0),  # released, not confirmed
    Label("q0", "d4", 1),  # missed
    Label("q0", "d5", None, "judges disagree"),
    Label("q1", "d2", 0),
    Label("q1", "d3", 0),
    Label("q2", "d0", 0),
    Label("q2", "d1", 1),
    Label("q2", "d2", 1),
]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(params=["retrieval", "reranking"])
def folder(request, tmp_path):
    root = tmp_path / "clinic"
    write(root / "corpus.jsonl", [{"_id": f"d{i}", "title": f"题{i}", "text": f"文{i}"} for i in range(6)])
    write(root / "queries.jsonl", [{"_id": f"q{i}", "text": f"问{i}"} for i in range(3)])
    rows = [f"{query}\t{document}\t1" for query, documents in QRELS.items() for document in documents]
    (root / "qrels").mkdir()
    (root / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    if request.param == "reranking":
        lists = {"q0": ["d0", "d1", "d4", "d5"], "q1": ["d2", "d3"], "q2": ["d0", "d1", "d3"]}
        write(root / "top_ranked.jsonl", [{"query-id": q, "corpus-ids": d} for q, d in lists.items()])
    return root


def test_false_positives_and_negatives_are_counted_for_each_query(folder):
    result = audit(read_benchmark(folder), LABELS)
    numbers = {
        q.query: (q.judged, q.undecided, q.released, q.found, q.false_positives, q.false_negatives)
        for q in result.queries
    }
    # d3 of q2 is released but was not judged, so it counts nowhere.
    assert numbers == {"q0": (3, 1, 2, 2, 1, 1), "q1": (2, 0, 1, 0, 1, 0), "q2": (3, 0, 0, 2, 0, 2)}
    mean, low, high = result.means["false_negatives"]
    assert (mean, result.affected) == (1.0, pytest.approx(2 / 3))
    assert low < mean < high
    assert result.to_json()["means"]["found"][0] == pytest.approx(4 / 3, abs=1e-4)


def qrels_of(folder):
    rows = (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]
    return {tuple(row.split("\t")[:2]) for row in rows}


def test_an_audit_writes_a_corrected_edition(folder, tmp_path):
    before = qrels_of(folder)
    benchmark = read_benchmark(folder)
    edition = write_corrected(benchmark, LABELS, tmp_path / "out", name="clinic-corrected", provenance={})
    assert qrels_of(folder) == before
    expected = {("q0", "d0"), ("q0", "d4"), ("q2", "d3"), ("q2", "d1")}
    if not benchmark.candidates:
        expected.add(("q2", "d2"))  # no candidate of the list
    assert qrels_of(tmp_path / "out") == expected
    assert edition.extra["corrected"] == {
        "added": len(expected) - 2, "removed": 2, "queries left out": 1,
    }  # fmt: skip
    layout = inspect_folder(tmp_path / "out")
    assert ("top_ranked" in layout.tables) == bool(benchmark.candidates)
    only = write_corrected(
        benchmark, LABELS, tmp_path / "more", name="x", provenance={}, keep_false_positives=True
    )
    assert only.extra["corrected"]["removed"] == 0
    assert before <= qrels_of(tmp_path / "more")


def test_mismatched_inputs_are_refused(folder, tmp_path):
    benchmark = read_benchmark(folder)
    with pytest.raises(BuildError, match="'q0' and 'gone'"):
        audit(benchmark, [Label("q0", "gone", 1)])
    with pytest.raises(BuildError, match="no labels to compare"):
        audit(benchmark, [])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(BuildError, match="is not empty"):
        write_corrected(benchmark, LABELS, tmp_path / "full", name="x", provenance={})
    none = [Label(query, document, 0) for query, row in QRELS.items() for document in row]
    with pytest.raises(BuildError, match="contradict the whole benchmark"):
        write_corrected(benchmark, none, tmp_path / "none", name="x", provenance={})


def test_other_types_of_folders_are_refused(tmp_path):
    root = tmp_path / "pairs"
    write(root / "test.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1}])
    with pytest.raises(BuildError, match="is not a retrieval or reranking folder"):
        read_benchmark(root)


def test_a_corrected_edition_says_how_it_was_made(folder, tmp_path):
    before = {"sources": [{"name": "clinic"}], "judges": [{"name": "first"}]}
    (folder / "provenance.json").write_text(json.dumps(before), encoding="utf-8")
    added = {"judges": [{"name": "second"}], "consensus": [{"rule": "unanimous"}]}
    edition = write_corrected(read_benchmark(folder), LABELS, tmp_path / "out", name="x", provenance=added)
    provenance = json.loads((edition.path / "provenance.json").read_text("utf-8"))
    assert provenance["sources"] == before["sources"]
    assert provenance["judges"] == [{"name": "first"}, {"name": "second"}]
    assert provenance["consensus"] == added["consensus"]
    card = json.loads((edition.path / "croissant.json").read_text("utf-8"))
    assert card["name"] == "clinic-x"
    assert card == croissant(edition)
