"""`medteb edition extend`: scores before and after, and editions that cannot be extended."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.editions import load_edition, write_manifest

ARGS = ("edition", "extend", "clinic", "out", "-r", "new.trec", "--judges", "judges.yaml", "-q")
#: The edition says neither by which rule it was labelled nor by whom.
FREE = ("--rule", "majority", "--other-panel")


@pytest.fixture
def clinic(work, retrieval_folder, judges):
    """An edition with negatives, and a run that finds the positive of each query first."""

    def make(negatives):
        retrieval_folder(work / "clinic")
        rows = [f"q{query}\td{document}" for query, document in negatives]
        (work / "clinic" / "judged_negatives.tsv").write_text(
            "\n".join(["query-id\tcorpus-id", *rows]) + "\n"
        )
        write_manifest(work / "clinic", task="Clinic", name="own", version="1.0.0", licence="mit", counts={})
        run = [
            f"q{q} Q0 d{(q + place) % 6} {place + 1} {9 - place} x" for q in range(3) for place in range(2)
        ]
        (work / "new.trec").write_text("\n".join(run) + "\n")
        judges(budget_tokens=1)
        return work

    return make


def test_documents_that_are_judged_already_need_no_judge(medteb, clinic):
    work = clinic([(q, (q + 1) % 6) for q in range(3)])
    before = load_edition(work / "clinic")
    code, out, err = medteb(*ARGS, *FREE)
    assert (code, err) == (0, "")
    header, row, last = out.splitlines()
    assert header.split() == ["system", "labels", "nDCG@10", "[95", "%]", "judged@10", "condensed"]
    assert row.split() == ["new", "before", "1.0000", "[1.0000,", "1.0000]", "100.0%", "1.0000"]
    assert last == "all these documents are judged already, so no new version was written"
    content = json.loads(medteb(*ARGS, *FREE, "--json")[1])
    assert (content["edition"], content["change"], content["after"]) == (None, None, {})
    assert content["before"]["new"] == {"ndcg": 1.0, "low": 1.0, "high": 1.0, "judged": 1.0, "condensed": 1.0}
    assert not (work / "out" / "Clinic").exists()
    assert load_edition(work / "clinic") == before


def test_missing_judgements_are_an_exit_code(medteb, clinic):
    work = clinic([(0, 1)])
    code, out, err = medteb(*ARGS, *FREE, "--already-anonymous")
    assert code == 1
    assert "66.7%" in out  # of the six documents, three positives and a negative are judged
    assert err.splitlines() == [
        "medteb: one stopped: 0 of its 1 tokens are spent",
        "medteb: two stopped: 0 of its 1 tokens are spent",
        "medteb: judgements are missing; the same command resumes",
    ]
    assert not (work / "out" / "Clinic").exists()


def test_a_depth_of_one_asks_for_less(medteb, clinic):
    clinic([(0, 1)])
    code, out, err = medteb(*ARGS, *FREE, "--depth", "1")
    assert (code, err) == (0, "")
    assert "all these documents are judged already" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (FREE, "documents have not been anonymised"),
        (FREE[:2], "does not say who judged it"),
        (FREE[2:], "does not say by which rule its labels were made"),
        (("--other-panel", "--rule", "mean"), "'mean' is not a rule"),
        ((*FREE, "--version", "1.0.0"), "There is a version '1.0.0' of this edition already"),
        ((*FREE, "-r", "again=new.trec", "-r", "again=new.trec"), "Two of the retrievers have one name"),
        ((*FREE, "-r", "./gone"), "There is no folder ./gone"),
    ],
)
def test_unusable_settings_are_refused(refused, clinic, more, message):
    work = clinic([(0, 1)])
    assert message in refused(*ARGS, *more)
    assert not (work / "out" / "Clinic").exists()


@pytest.mark.parametrize(
    ("candidates", "message"),
    [(["d0"], "the candidates of reranking are fixed"), (None, "lists no judged negatives")],
)
def test_other_editions_are_refused(refused, clinic, retrieval_folder, candidates, message):
    work = clinic([])
    retrieval_folder(work / "clinic", candidates=candidates)
    (work / "clinic" / "judged_negatives.tsv").unlink()
    write_manifest(work / "clinic", task="Clinic", name="own", version="1.0.0", licence="mit", counts={})
    assert message in refused(*ARGS, *FREE)
