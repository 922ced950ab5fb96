"""`medteb judge`: estimates, refusals, and the report of a run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from medteb_mteb.commands.judge import estimate_text, report_text
from medteb_mteb.curation.judge.entries import JudgeAccount
from medteb_mteb.curation.judge.estimate import Estimate
from medteb_mteb.curation.judge.export import Outcome
from medteb_mteb.curation.judge.report import JudgeReport, JudgeResult

ARGS = ("judge", "queries.jsonl", "documents.jsonl", "pools.jsonl", "out", "--judges", "judges.yaml", "-q")


def test_a_dry_run_estimates_each_judge_and_writes_nothing(medteb, pooled, judges):
    judges()
    before = sorted(pooled.iterdir())
    code, out, err = medteb(*ARGS, "--dry-run")
    assert (code, err) == (0, "")
    first, second, total = out.splitlines()
    assert first.startswith("one: 18 judgements, 0 in the journal, 0 failed before; ")
    assert second.startswith("two: 18 judgements, ")
    estimates = json.loads(medteb(*ARGS, "--dry-run", "--json")[1])
    for estimate, price in zip(estimates, (1.0, 2.0), strict=True):
        assert estimate["cost"] == pytest.approx(price * estimate["tokens_in"] / 1e6)
    requests, cost = (sum(e[name] for e in estimates) for name in ("requests", "cost"))
    assert total == f"in all: {requests} requests, cost {cost:.2f}; nothing was sent"
    assert sorted(pooled.iterdir()) == before


def test_pairs_that_are_left_are_an_exit_code(medteb, pooled, judges):
    judges(budget_tokens=1)
    code, out, err = medteb(*ARGS, "--already-anonymous")
    assert code == 1
    assert out.endswith("18 pairs, not complete\n")
    assert err.splitlines() == [
        f"medteb: {name} stopped: 0 of its 1 tokens are spent. 18 of 18 pairs are left. Run the same command "
        "again to resume."
        for name in ("one", "two")
    ]
    assert not (pooled / "out" / "judgements.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "3 of 3 queries and 6 of 6 documents have not been anonymised"),
        (("--already-anonymous", "--gold", "gone.jsonl"), "gone.jsonl"),
        (("--repair",), "There is no journal at "),
    ],
)
def test_unusable_input_is_refused(refused, pooled, judges, more, message):
    judges()
    assert message in refused(*ARGS, *more)
    assert not (pooled / "out").exists()


def test_two_judges_that_are_one_model_are_refused(refused, pooled):
    entry = "{name: %s, model: m, base_url: 'http://127.0.0.1:1/v1'}"
    (pooled / "judges.yaml").write_text(f"judges: [{entry % 'a'}, {entry % 'b'}]")
    assert "judges 'a' and 'b' are the same model" in refused(*ARGS, "--dry-run")


def test_an_estimate_says_what_is_special_about_a_judge():
    usual = {"judgements": 8, "known": 2, "failed": 1, "requests": 3, "tokens_in": 90, "tokens_out": 10}
    plain = Estimate("a", **usual, cost=0.5, spent=0.0, budget=None, suspicious=0)
    special = Estimate("b", **usual, cost=1.0, spent=0.25, budget=2.0, suspicious=4, checks=6)
    assert estimate_text([plain, special]).splitlines() == [
        "a: 8 judgements, 2 in the journal, 1 failed before; 3 requests, about 90 tokens in, 10 out, "
        "cost 0.50",
        "b: 8 judgements, 2 in the journal, 1 failed before; 3 requests, about 90 tokens in, 10 out, "
        "cost 1.00 (spent 0.25 of 2); 4 passages look like instructions and are judged alone; at most 6 "
        "more to check "
        "positives",
        "in all: 6 requests, cost 1.50; nothing was sent",
    ]


def test_a_report_names_grades_failures_and_costs_by_judge():
    failed = Outcome({"S": 1, "D": 2})
    failed.failed.update(Counter({"no-json": 2, "refused": 1}))
    paid = JudgeAccount(answers=7, tokens_in=100, tokens_out=20, cost=0.5, estimated=1, controls=3)
    results = (JudgeResult("a", failed, bought=3, known=1, account=paid), JudgeResult("b", Outcome({"A": 6})))
    text = report_text(
        JudgeReport(Path("out"), Path("j.sqlite"), 6, results, complete=True, notes=("a note",))
    )
    assert text.splitlines() == [
        "a: S 1  D 2  (3 new, 1 from the journal)",
        "  paid over all runs: 7 answers, 1 of them estimated, 100 tokens in, 20 out, cost 0.5; "
        "control passages: 3, failed 0",
        "  failed: 3 (no-json 2, refused 1); --retry-failed sends them again",
        "b: A 6  (0 new, 0 from the journal)",
        "a note",
        f"6 pairs, {Path('out/judgements.jsonl')}",
    ]
