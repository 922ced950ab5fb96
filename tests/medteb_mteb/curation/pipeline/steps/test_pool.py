"""The step `pool`: merged candidates of its retrievers, and the most that they can be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pooling.pool import Pooling, open_retriever, pool

POOL = {"step": "pool", "queries": "queries.jsonl", "documents": "documents.jsonl", "retrievers": ["bm25"]}


@pytest.mark.parametrize("merge", ["rrf", "union"])
def test_the_step_writes_what_the_function_writes_with_its_options(made, tmp_path, merge):
    (tmp_path / "other.trec").write_text("q00 Q0 d11 1 0.9 x\nq01 Q0 d30 1 0.8 x\n")
    options = {"retrievers": ["bm25", "other.trec"], "size": 3, "depth": 5, "merge": merge}
    result, folder = made({**POOL, **options}, name=f"{merge}.yaml")
    texts = [list(read_texts(tmp_path / f"{name}.jsonl")) for name in ("queries", "documents")]
    ids = ([text.id for text in texts[0]], [text.id for text in texts[1]])
    retrievers = [open_retriever("bm25"), open_retriever(str(tmp_path / "other.trec"), ids=ids)]
    how = Pooling(size=3, depth=5, merge=merge)
    by_hand = pool(*texts, retrievers, tmp_path / "by-hand", how, show_progress=False)
    assert (folder / "pools.jsonl").read_bytes() == by_hand.read_bytes()
    assert (result["queries"], result["documents"]) == (36, 49)
    assert set(result["found by one alone"]) == {"bm25", "other"}


@pytest.mark.parametrize(
    ("options", "each"),
    [
        ({"size": 12}, 12),
        ({"depth": 7}, 7),
        ({"depth": 7, "retrievers": ["bm25", "other.trec"]}, 14),
        ({}, 49),
    ],
)
def test_a_forecast_bounds_the_pairs_by_size_depth_and_documents(planned, made, tmp_path, options, each):
    (tmp_path / "other.trec").write_text("q00 Q0 d11 1 0.9 x\n")
    volume = planned({**POOL, **options}).writes
    assert (volume.items, volume.queries, volume.exact) == (36 * each, 36, False)
    result, _ = made({**POOL, **options})
    assert 0 < result["pairs"] <= volume.items


def test_pools_are_read_from_their_file_and_the_size_of_a_batch_does_not_change_them(write, quiet, planned):
    judge = {"step": "judge", "queries": "queries.jsonl", "documents": "documents.jsonl", "pools": "pool"}
    quiet(write(steps=[{**POOL, "size": 3}]))
    assert [one.fate for one in quiet(write(steps=[{**POOL, "size": 3, "batch_size": 5}])).steps] == ["kept"]
    volume = planned({**POOL, "size": 3}, judge).writes
    assert (volume.items, volume.exact) == (36 * 3, True)


@pytest.mark.parametrize(
    "retrievers", [["bm25", "bm25"], ["bm25", "bm25:char-bigram"], ["x.trec", "more/x.trec"], ["x.trec"] * 2]
)
def test_retrievers_of_one_name_are_refused_before_the_first_step(write, quiet, tmp_path, retrievers):
    dedup = {"step": "dedup", "in": "documents.jsonl"}
    path = write(steps=[dedup, {**POOL, "documents": "dedup", "retrievers": retrievers}])
    with pytest.raises(BuildError, match="Step 'pool': two retrievers have one name: "):
        quiet(path)
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(("key", "value"), [("retrievers", []), ("size", 0), ("depth", 0), ("merge", "sum")])
def test_impossible_options_are_refused(parsed, key, value):
    with pytest.raises(ValidationError, match=key):
        parsed(**{**POOL, key: value})
