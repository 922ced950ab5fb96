"""The step `assemble`: editions of labels, which share nothing with training data."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.edition.assemble import Assembly, assemble
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import read_labels

ASSEMBLE = {
    "step": "assemble", "labels": "labels.jsonl", "queries": "queries.jsonl", "documents": "documents.jsonl",
    "edition": "clinic", "licence": "mit", "test": 0.4, "threshold": 0.9, "small": True,
}  # fmt: skip

LEAK = {"query": "失眠怎么治疗", "positive": "a", "negative": "b"}


def test_every_option_reaches_the_settings(parsed):
    options = {
        "licence": "cc-by-4.0",
        "version": "2.1.0",
        "test": 12.0,
        "corpus": "labelled",
        "list_size": 40,
        "list_positives": 4,
        "leaks": "keep",
        "threshold": 0.7,
        "seed": 7,
        "small": True,
    }
    assert asdict(parsed(**{**ASSEMBLE, **options}).made()) == {"name": "clinic", **options}


def test_the_step_writes_what_the_function_writes(made, labelled, files_of, tmp_path):
    options = {"corpus": "labelled", "list_size": 3, "list_positives": 1, "seed": 3}
    result, folder = made({**ASSEMBLE, **options})
    texts = [
        {text.id: text for text in read_texts(tmp_path / f"{name}.jsonl")}
        for name in ("queries", "documents")
    ]
    how = Assembly("clinic", "mit", test=0.4, threshold=0.9, small=True, **options)
    built = assemble(read_labels(tmp_path / labelled), *texts, tmp_path / "by-hand", how)
    assert files_of(folder) == files_of(tmp_path / "by-hand")
    assert {task: one["digest"] for task, one in result["editions"].items()} == {
        task: edition.digest for task, edition in built.editions.items()
    }
    assert result["triples"] == built.triples > 0


def test_the_power_of_the_test_is_said(write, labelled):
    said = []
    building.build(write(steps=[ASSEMBLE]), show_progress=False, say=said.append)
    (note,) = [line for line in said if "nDCG@10" in line]
    assert note.startswith("With ")


@pytest.mark.parametrize(("leaks", "lost"), [("drop", 1), ("keep", 0)])
def test_queries_of_training_data_are_left_out_of_the_test(made, labelled, save, leaks, lost):
    save("training.jsonl", [LEAK])
    result, _ = made({**ASSEMBLE, "test": 36, "leaks": leaks, "against": ["training.jsonl"]})
    assert result["editions"]["MedTEBRetrieval"]["counts"]["queries"] == 36 - lost


def test_a_test_that_was_trained_on_is_an_error_on_demand(made, labelled, save):
    save("training.jsonl", [LEAK])
    with pytest.raises(
        BuildError, match="Step 'assemble': 1 test queries are near-duplicates of training queries"
    ):
        made({**ASSEMBLE, "test": 36, "leaks": "fail", "against": ["training.jsonl"]})


def test_training_data_of_an_earlier_step_counts_without_being_named(made, labelled, save):
    save("few.jsonl", [{"_id": "t1", "text": "失眠怎么治疗"}, {"_id": "t2", "text": "哮喘会传染吗"}])
    result, _ = made({"step": "pairs", "queries": ["few.jsonl"]}, {**ASSEMBLE, "test": 36})
    assert result["editions"]["MedTEBRetrieval"]["counts"]["queries"] == 34


def test_training_queries_are_kept_away_from_an_edition_of_an_earlier_step(
    made, labelled, synonyms, llm, server, rows_of
):
    sts = {"step": "sts", "dictionary": synonyms, "queries": "queries.jsonl", "test": 0.4}
    sts |= {"edition": "clinic", "licence": "mit"}
    assembled = {**ASSEMBLE, "test": 0.2, "threshold": 1.0}
    settings = {"url": server, "llm": llm("rewriter", server), "already_anonymous": True}
    result, folder = made(sts, assembled, **settings)
    assert result["statistics"]["training queries near another test"] > 0
    tested = {row["sentence1"] for row in rows_of(folder.parent / "sts" / "MedTEBSTS" / "test.jsonl")}
    trained = {row["query"] for row in rows_of(folder / "train" / "triples.jsonl")}
    assert trained
    assert trained.isdisjoint(tested)
