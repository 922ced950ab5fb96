"""Two editions: every kind of change is found, and scores on both are paired by model."""

from __future__ import annotations

import itertools

import pytest
from tests.conftest import read_jsonl, write_jsonl, write_judged
from tests.medteb_mteb.compare.results import write_result

from mar_st.errors import MarError
from medteb_mteb.compare.editions import compare_editions
from medteb_mteb.editions import write_manifest

FIELDS = {"task": "Mine", "name": "mini", "licence": "mit", "counts": {}}


@pytest.fixture
def pair(make_folder):
    """Two equal folders of retrieval, with judged negatives and disputed pairs."""
    folders = [make_folder("Retrieval", name) for name in ("first", "second")]
    for folder in folders:
        write_judged(folder, [("q1", "d2", 0), ("q1", "d3", 0)], "labels.tsv")
        (folder / "disputed.tsv").write_text("query-id\tcorpus-id\nq3\td6\n")
    return folders


def test_equal_data_have_no_difference_whatever_the_manifest_says(pair):
    bare = compare_editions(*pair)
    assert not any(one.added or one.removed or one.changed for one in bare.changes.values())
    assert {one.verdict for one in bare.page().findings} == {"ok"}
    assert bare.scores is None
    for folder, version in zip(pair, ("1", "2"), strict=True):
        write_manifest(folder, version=version, **FIELDS)
    found = compare_editions(*pair)
    assert found.changes == bare.changes
    assert found.digests == bare.digests
    assert len(set(found.revisions)) == 2


def test_texts_and_labels_that_were_added_removed_and_changed(pair):
    first, second = pair
    queries, corpus = read_jsonl(second / "queries.jsonl"), read_jsonl(second / "corpus.jsonl")
    queries[0]["text"] += "？"
    queries[1]["_id"] = "q9"
    write_jsonl(second / "queries.jsonl", queries)
    corpus[5]["title"] = "鼻炎"
    write_jsonl(second / "corpus.jsonl", [*corpus, {"_id": "d7", "title": "", "text": "新的文档。"}])
    (second / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t1\nq9\td2\t2\nq9\td3\t1\nq3\td4\t1\nq3\td6\t1\n"
    )
    (second / "labels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td3\t0\nq1\td7\t0\n")
    found = compare_editions(first, second)
    kinds = {part: (one.added, one.removed, one.changed, one.same) for part, one in found.changes.items()}
    assert kinds == {
        "queries": (["q9"], ["q2"], ["q1"], 1),
        "documents": (["d7"], [], ["d6"], 5),
        "labels": (["q1 d7", "q9 d2", "q9 d3"], ["q2 d2", "q2 d3"], ["q1 d1", "q1 d2", "q3 d6"], 2),
    }
    flips = {key: set(ids) for key, ids in found.changes["labels"].grades.items()}
    assert flips == {
        ("1", "2"): {"q1 d1"},
        ("0", "1"): {"q1 d2"},
        ("disputed", "1"): {"q3 d6"},
        ("2", "not listed"): {"q2 d2"},
        ("1", "not listed"): {"q2 d3"},
        ("not listed", "0"): {"q1 d7"},
        ("not listed", "2"): {"q9 d2"},
        ("not listed", "1"): {"q9 d3"},
    }
    back = compare_editions(second, first)
    for part, one in found.changes.items():
        other = back.changes[part]
        assert (other.added, other.removed, other.changed) == (one.removed, one.added, one.changed)


@pytest.mark.parametrize("kind", ["STS", "PairClassification", "Classification", "Clustering", "Reranking"])
def test_other_types_of_tasks(make_folder, kind):
    first, second = make_folder(kind, "first"), make_folder(kind, "second")
    assert not any(one.changed for one in compare_editions(first, second).changes.values())
    if kind == "Reranking":
        rows = read_jsonl(second / "top_ranked.jsonl")
        rows[0]["corpus-ids"].reverse()
        write_jsonl(second / "top_ranked.jsonl", rows)
        assert compare_editions(first, second).changes["candidates"].changed == [rows[0]["query-id"]]
        return
    rows = read_jsonl(second / "test.jsonl")
    key = next(name for name in ("score", "label", "labels") if name in rows[0])
    before, rows[0][key] = rows[0][key], rows[1][key]
    dropped = rows.pop()
    if before == rows[0][key]:
        rows[0][key] = 1 - before
    write_jsonl(second / "test.jsonl", rows)
    found = compare_editions(first, second).changes["rows of test"]
    assert (found.added, len(found.removed), len(found.changed)) == ([], 1, 1)
    assert any(value in found.removed[0] for value in dropped.values() if isinstance(value, str))


def test_types_that_differ_are_refused(make_folder):
    with pytest.raises(MarError):
        compare_editions(make_folder("STS"), make_folder("Retrieval"))


def test_scores_of_models_on_both_editions_and_their_ranking(pair, tmp_path):
    first, second = pair
    for folder, version in zip(pair, ("1", "2"), strict=True):
        write_manifest(folder, version=version, **FIELDS)
    revisions = compare_editions(first, second).revisions
    scores = {"org/a": (0.9, 0.7), "org/b": (0.8, 0.75), "org/c": (0.5, 0.4), "org/d": (0.2, 0.1)}
    for (model, values), number in itertools.product(scores.items(), (0, 1)):
        write_result(tmp_path / f"out{number}", model, "Mine", values[number], data=revisions[number])
    write_result(tmp_path / "out0", "org/only-first", "Mine", 0.5, data=revisions[0])
    write_result(tmp_path / "out1", "org/other-data", "Mine", 0.5, data="elsewhere")
    found = compare_editions(first, second, [tmp_path / "out0", tmp_path / "out1"])
    assert [(one.model.partition("@")[0], one.first, one.second) for one in found.scores] == [
        (model, *values) for model, values in scores.items()
    ]
    pairs = list(itertools.combinations(scores.values(), 2))
    agree = sum((a[0] > b[0]) == (a[1] > b[1]) for a, b in pairs)
    assert found.tau == pytest.approx((2 * agree - len(pairs)) / len(pairs))
    assert found.to_json()["kendall_tau"] == found.tau


def test_without_models_on_both_there_is_no_agreement(pair, tmp_path):
    write_result(tmp_path, "org/a", "Mine", 0.5)
    found = compare_editions(*pair, [tmp_path])
    assert (found.scores, found.tau) == ([], None)
    assert found.page().findings[-1].verdict == "not known"
