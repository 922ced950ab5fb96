"""`medteb triples`: estimates, refusals, and the report of a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from medteb_mteb.commands.triples import cost_text, report_text
from medteb_mteb.curation.llm import Account, Cost
from medteb_mteb.curation.training.triples import TriplesReport

ARGS = ("triples", "queries.jsonl", "documents.jsonl", "pools.jsonl", "out", "--llm", "llm.yaml", "-q")


def test_a_dry_run_estimates_and_writes_nothing(medteb, pooled, llm):
    llm()
    before = sorted(pooled.iterdir())
    code, out, err = medteb(*ARGS, "--dry-run")
    assert code == 0
    assert out.startswith("3 prompts, 0 in the journal, 0 failed before; 3 requests, about ")
    assert out.endswith("; nothing was sent\n")
    assert "no --against EDITION was given" in err
    cost = json.loads(medteb(*ARGS, "--dry-run", "--json")[1])
    assert cost_text(Cost(**cost)) + "\n" == out
    assert cost["cost"] == pytest.approx((cost["tokens_in"] + 2 * cost["tokens_out"]) / 1e6)
    assert sorted(pooled.iterdir()) == before


def test_options_decide_how_much_is_asked(medteb, pooled, llm, write):
    llm()

    def prompts(*more):
        code, out, err = medteb(*ARGS, "--dry-run", "--json", *more)
        assert code == 0, err
        return json.loads(out)["prompts"], err

    assert prompts("--documents", "2")[0] == 9
    assert prompts("--documents", "2", "--depth", "3")[0] == 6
    write(pooled / "test.jsonl", [{"_id": "t", "text": "感冒怎么办？"}])
    number, err = prompts("--against", "test.jsonl")
    assert (number, err) == (2, "")


def test_a_run_that_stops_says_how_to_resume(medteb, pooled, llm):
    llm(budget_tokens=1)
    code, out, err = medteb(*ARGS, "--already-anonymous")
    assert code == 1
    assert out.endswith("\nnot complete\n")
    assert err.splitlines()[-1] == (
        "medteb: stopped: 0 of its 1 tokens are spent. Run the same command again to resume."
    )
    assert not (pooled / "out" / "manifest.json").exists()
    report = json.loads(medteb(*ARGS, "--already-anonymous", "--json")[1])
    assert (report["complete"], report["bought"]) == (False, 0)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "3 of 3 queries and 6 of 6 documents have not been anonymised"),
        (("--already-anonymous", "--choose", "best"), "'best'"),
        (("--already-anonymous", "--against", "gone"), "gone"),
        (("--repair",), "There is no journal at "),
    ],
)
def test_unusable_input_is_refused(refused, pooled, llm, more, message):
    llm()
    assert message in refused(*ARGS, *more)
    assert not (pooled / "out").exists()


def report(**fields):
    counts = {"queries": 1200, "triples": 1000, "pairs": 20, "positives": 1500, "prompts": 2400}
    content = {"counts": counts, "dropped": {}, "failed": {}, "known": 5, "bought": 2395} | fields
    return TriplesReport(Path("out"), Path("answers.sqlite"), **content)


def test_a_report_lists_what_is_there_and_nothing_else():
    lines = report_text(report()).splitlines()
    assert lines == [
        "1,200 queries: 1,000 triples, 20 pairs without a negative",
        "1,500 positives, 0 negatives, 0 documents that an answer left out",
        "2,400 prompts: 2,395 new answers, 5 from the journal",
        "out",
    ]
    paid = Account(answers=2400, tokens_in=10_000, tokens_out=500, cost=1.25)
    more = report(dropped={"test-query": 80}, failed={"no-json": 2}, account=paid, notes=("a note",))
    added = [line for line in report_text(more).splitlines() if line not in lines]
    assert added == [
        "  dropped: 80 queries, test-query",
        "  failed: no-json 2; --retry-failed sends them again",
        "paid over all runs: 2,400 answers, 10,000 tokens in, 500 out, cost 1.25",
        "a note",
    ]


def test_an_estimate_shows_a_budget_of_its_own():
    cost = Cost(
        prompts=2, known=1, failed=0, requests=1, tokens_in=10, tokens_out=5, cost=0.5, spent=1.0, budget=3.0
    )
    assert "cost 0.50 (spent 1.00 of 3); nothing" in cost_text(cost)
    assert "cost 0.50 (spent 1.00); nothing" in cost_text(Cost(**asdict(cost) | {"budget": None}))
