from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.audit import audit, read_benchmark
from medteb_mteb.curation.labels.grades import Label

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


def test_mismatched_inputs_are_refused(folder):
    benchmark = read_benchmark(folder)
    with pytest.raises(BuildError, match="'q0' and 'gone'"):
        audit(benchmark, [Label("q0", "gone", 1)])
    with pytest.raises(BuildError, match="no labels to compare"):
        audit(benchmark, [])


def test_other_types_of_folders_are_refused(tmp_path):
    root = tmp_path / "pairs"
    write(root / "test.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1}])
    with pytest.raises(BuildError, match="is not a retrieval or reranking folder"):
        read_benchmark(root)
