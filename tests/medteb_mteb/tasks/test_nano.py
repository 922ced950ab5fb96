"""Nano sets: the published tables, checks of a split, and tasks on copies and folders."""

from __future__ import annotations

import mteb
import pytest
from tests.medteb_mteb.tasks.nano_sets import tables, write_set, write_split

from mar_st.errors import MarError
from medteb_mteb.tasks.nano import BM25, DENSE, HYBRID, nano_scores, nano_tasks_from_folder
from medteb_mteb.tasks.tables import table


class Scripted:
    """A reranker that scores by the document's number, and notes what it was asked."""

    def __init__(self) -> None:
        meta = mteb.get_model_meta("bm25-char-bigram")
        self.mteb_model_meta = meta.model_copy(update={"name": "x/scripted"})
        self.asked: list[str] = []

    def predict(self, inputs1, inputs2, **kwargs):
        documents = [text for batch in inputs2 for text in batch["text"]]
        self.asked += documents
        return [float(text.partition("第")[2].partition("条")[0]) for text in documents]


def test_the_published_tables_are_consistent():
    nano = table("nano")
    assert {name: len(one["splits"]) for name, one in nano.items()} == {"NanoCMTEB": 8, "NanoMedical": 10}
    for one in nano.values():
        for row in one["splits"].values():
            hybrid = row["lists"][HYBRID]
            assert row["positives"] >= row["queries"]
            # A safeguard is a 101st candidate, so the mean length counts them.
            size = min(100, row["documents"])
            assert hybrid["mean_length"] == pytest.approx(size + row["safeguards"] / row["queries"], abs=1e-3)
            assert mteb.get_task(row["task"])


def test_a_copy_is_read_and_its_revision_is_that_of_its_split(tmp_path, monkeypatch):
    write_set(tmp_path / "NanoCMTEB", ["medical", "cmedqa"])
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    first = mteb.get_task("NanoCMTEBMedicalRetrieval").metadata.revision
    write_split(tmp_path / "NanoCMTEB", "cmedqa", tables(110))
    assert mteb.get_task("NanoCMTEBMedicalRetrieval").metadata.revision == first
    write_split(tmp_path / "NanoCMTEB", "medical", tables(110))
    assert mteb.get_task("NanoCMTEBMedicalRetrieval").metadata.revision != first
    assert mteb.get_task("NanoCMTEBVideoRetrieval").metadata.revision == "main"  # not in the copy


@pytest.mark.parametrize(
    ("suffix", "size"),
    [("Reranking", 101), ("RerankingNoSafeguard", 100), ("BM25Reranking", 119), ("DenseReranking", 119)],
)
def test_a_reranker_is_asked_for_the_candidates_of_the_variant(tmp_path, monkeypatch, suffix, size):
    write_split(tmp_path / "NanoCMTEB", "medical")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    model, task = Scripted(), mteb.get_task(f"NanoCMTEBMedical{suffix}")
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0]
    per_query = {"Reranking": [100, 100, 101], "RerankingNoSafeguard": [100] * 3}.get(suffix, [size] * 3)
    assert len(model.asked) == sum(per_query)
    (scores,) = result.scores["medical"]
    assert scores["hit_rate_at_1"] == pytest.approx(1 / 3 if suffix == "Reranking" else 0, abs=1e-5)
    assert {"recall_micro_at_10", "recall_micro_at_100", "map_capped_at_100"} <= scores.keys()


def test_candidates_do_not_show_their_ranks(tmp_path, monkeypatch):
    write_split(tmp_path / "NanoCMTEB", "medical")
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path))
    task = mteb.get_task("NanoCMTEBMedicalReranking")
    task.load_data()
    lists = task.dataset["default"]["medical"]["top_ranked"]
    columns = tables()[HYBRID]
    published = dict(zip(columns["query-id"], columns["corpus-ids"], strict=True))
    assert all(sorted(lists[query]) == sorted(published[query]) for query in published)
    assert lists["q2"].index("d119") != 100


@pytest.mark.parametrize(
    "breaking",
    [
        lambda t: t["qrels"]["query-id"].__setitem__(0, "qX"),
        lambda t: t["qrels"]["corpus-id"].__setitem__(0, "dX"),
        lambda t: t["queries"]["_id"].__setitem__(1, "q0"),
        lambda t: t["corpus"]["text"].__setitem__(0, " "),
        lambda t: t[BM25]["corpus-ids"][0].append("d0"),
        lambda t: t[DENSE]["query-id"].__setitem__(0, "q1"),
    ],
)
def test_a_split_that_breaks_a_rule_is_refused(tmp_path, breaking):
    content = {name: {key: [*map(list, v)] if key == "corpus-ids" else list(v) for key, v in columns.items()}
               for name, columns in tables().items()}  # fmt: skip
    breaking(content)
    write_split(tmp_path / "Set", "one", content)
    with pytest.raises(MarError):
        for task in nano_tasks_from_folder(tmp_path / "Set"):
            task.load_data()


def test_folders_without_the_layout_are_refused(tmp_path, make_folder):
    for folder in (tmp_path / "absent", make_folder("Retrieval")):
        with pytest.raises(MarError, match="expected a Nano set"):
            nano_tasks_from_folder(folder)


def test_scores_have_the_denominators_that_they_state():
    qrels = {"a": ["1", "2"], "b": ["3"]}
    rankings = {"a": ["1", "x", "2"], "b": ["x", *(f"y{i}" for i in range(10)), "3"]}
    scores = nano_scores(rankings, qrels)
    assert scores["recall_micro_at_10"] == pytest.approx(2 / 3)
    assert scores["recall_micro_at_100"] == 1
    assert scores["map_capped_at_100"] == pytest.approx(((1 + 2 / 3) / 2 + 1 / 12) / 2)
    assert nano_scores({}, qrels)["map_capped_at_100"] == 0
