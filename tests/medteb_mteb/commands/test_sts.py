"""`medteb sts`: probabilities, estimates, refusals, and the report of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.sts import parse_probabilities, report_text
from medteb_mteb.curation.llm import Account
from medteb_mteb.curation.sts import StsReport
from medteb_mteb.editions import Edition

ARGS = ("sts", "terms.tsv", "queries.jsonl", "data", "--llm", "llm.yaml", "-q")
NAMED = ("--name", "clinic", "--license", "cc-by-4.0")


@pytest.fixture
def terms(pooled, llm):
    """A dictionary of two of the three diseases of the queries, and an LLM that is not reached."""
    (pooled / "terms.tsv").write_text("origin\treplace\n感冒\t伤风\n高血压\t血压高\n", encoding="utf-8")
    llm(budget_tokens=1)
    return pooled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1/3,1/3,1/3", (1 / 3, 1 / 3, 1 / 3)),
        (" 0.5, 1/4 ,0.25", (0.5, 0.25, 0.25)),
        ("1,0,0", (1.0, 0.0, 0.0)),
    ],
)
def test_probabilities_are_decimals_or_fractions(text, expected):
    assert parse_probabilities(text) == expected


@pytest.mark.parametrize("text", ["", "0.5,0.5", "1/3,1/3,1/3,0", "1/0,0,1", "a,b,c", "nan,0,1", "1e400,0,0"])
def test_other_probabilities_are_refused(text):
    with pytest.raises(UserError) as caught:
        parse_probabilities(text)
    assert str(caught.value).endswith(f"such as 0.5,0.25,0.25; got {text!r}")


def test_a_dry_run_counts_the_queries_with_a_term(medteb, terms):
    before = sorted(terms.iterdir())
    code, out, _ = medteb(*ARGS, *NAMED, "--dry-run")
    assert code == 0
    first, second = out.splitlines()
    assert first == "3 queries, 2 dictionary entries; dropped: no-term 1"
    assert second.startswith(
        "2 rewrites of three questions, 0 in the journal, 0 failed before; 2 requests, about "
    )
    assert second.endswith("; nothing was sent")
    content = json.loads(medteb(*ARGS, *NAMED, "--dry-run", "--json", "--limit", "1")[1])
    assert content["cost"]["prompts"] == 1
    assert content["dropped"]["no-term"] == 1
    assert sorted(terms.iterdir()) == before


def test_a_run_that_stops_says_how_to_resume(medteb, terms):
    code, out, err = medteb(*ARGS, *NAMED, "--already-anonymous")
    assert code == 1
    assert out.endswith("nothing is written yet\n")
    assert err.endswith("stopped: 0 of its 1 tokens are spent. Run the same command again to resume.\n")
    assert not (terms / "data" / "MedTEBSTS").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (NAMED[:2], "Missing option '--license'"),
        (NAMED, "have not been anonymised"),
        ((*NAMED, "--probabilities", "1,0,0"), "needs positives and negatives for a correlation"),
        ((*NAMED, "--probabilities", "half"), "takes three comma-separated numbers"),
        ((*NAMED, "--per-entry", "0"), "per-entry"),
        ((*NAMED, "--source", "huatuo", "--already-anonymous"), "--source takes NAME=LICENCE"),
        ((*NAMED, "--keep-away", "gone", "--already-anonymous"), "gone"),
    ],
)
def test_unusable_settings_are_refused(refused, terms, more, message):
    assert message in refused(*ARGS, *more)
    assert not (terms / "data").exists()


def test_a_finished_report_names_the_edition_and_the_training_rows():
    edition = Edition("MedTEBSTS", "clinic", "1", "mit", {"test": 1500}, {}, Path("data/MedTEBSTS"))
    rewrites = {"positive": {"good": 1990, "unchanged": 10}, "negative-1": {"good": 2000}}
    report = StsReport(
        Path("data"), Path("answers.sqlite"), 2100, {}, rewrites, 2000, 0, Account(),
        edition=edition, triples=400, statistics={"test terms": 12},
    )  # fmt: skip
    assert report_text(report).splitlines() == [
        "answers: 2,000 new, 0 from the journal; answers.sqlite",
        "positive: good 1,990, unchanged 10",
        "negative-1: good 2,000",
        f"MedTEBSTS: 1,500 test; revision {edition.digest[:12]}",
        f"training triples: 400; {Path('data/train/sts.jsonl')}",
        "  test terms: 12",
        "score models on it: MEDTEB_DATA=data mteb run -t MedTEBSTS -m MODEL",
    ]
