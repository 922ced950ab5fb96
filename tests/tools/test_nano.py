"""Drawing of Nano splits from retrieval folders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mar_st.errors import MarError
from medteb_mteb.tasks.nano import nano_tasks_from_folder
from tools import nano

if TYPE_CHECKING:
    from pathlib import Path


def _source(folder: Path, judged: bool = True) -> Path:
    """Write three queries, of which two have the same text, and five documents."""
    (folder / "qrels").mkdir(parents=True)
    lines = [("q1", "fever cough"), ("q2", "fever cough"), ("q3", "back pain")]
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": k, "text": t}) + "\n" for k, t in lines))
    documents = ["influenza gives fever", "broken leg", "pain in the back", "", "lumbago and back pain"]
    rows = (json.dumps({"_id": f"d{n}", "title": "", "text": text}) for n, text in enumerate(documents))
    (folder / "corpus.jsonl").write_text("\n".join(rows))
    pairs = ["q1\td0\t1", "q2\td0\t1", "q3\td4\t1", "q3\td2\t0"] if judged else ["q1\td9\t1"]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *pairs]) + "\n")
    return folder


def test_a_split_holds_positives_then_judged_negatives_then_the_rest(tmp_path: Path) -> None:
    data = nano.build(_source(tmp_path / "set"), tmp_path / "out")
    assert list(data.queries) == ["q1", "q3"]
    assert list(data.corpus) == ["d0", "d4", "d2", "d1"]
    assert data.qrels == {"q1": ["d0"], "q3": ["d4"]}
    assert data.lists["bm25"]["q1"][0] == "d0"
    assert {len(row) for row in data.lists["bm25"].values()} == {4}
    assert [task.metadata.name for task in nano_tasks_from_folder(tmp_path / "out")] == [
        "out-set-Retrieval",
        "out-set-BM25Reranking",
    ]


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MarError, match="nothing to draw"):
        nano.build(_source(tmp_path / "set", judged=False), tmp_path / "out")


def test_a_hybrid_list_without_a_positive_gets_one_at_rank_101() -> None:
    corpus = {f"d{n:03}": f"text {n}" for n in range(200)}
    lists = [{"q": list(corpus)}, {"q": list(reversed(corpus))}]
    data = nano.NanoData("s", corpus, {"q": "text"}, {"q": ["d100"]}, {})
    (fused,) = nano.hybrid_list(data, lists).values()
    assert len(fused) == 101
    assert fused[:2] == ["d000", "d199"]
    assert fused[-1] == "d100"
