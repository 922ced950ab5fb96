"""Estimates of what a call would send and cost, from the prompts and the journal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medteb_mteb.curation.llm import LLM, Account, Cost, JournalError, Prompt, added, estimate_cost
from medteb_mteb.curation.llm.database import Failure, settings_digest
from medteb_mteb.curation.llm.journal import Answer, AnswerJournal, answer_key

WRITER = LLM(
    name="writer",
    model="writer",
    base_url="http://127.0.0.1:9/v1",
    price_in=1000,
    price_out=2000,
    budget=9,
)
SETTINGS = settings_digest(WRITER.settings("1"))


def prompt(name, user=None, variant=""):
    return Prompt(name, "系统", user or f"问{name}", {}, 5, variant)


def estimate(prompts, path, **options):
    return estimate_cost(prompts, WRITER, path, version="1", **options)


@pytest.fixture
def path(tmp_path):
    """A journal with an answer each for a good, an unread and a failed prompt, and an unanswered one."""
    path = tmp_path / "answers.sqlite"
    keys = {name: answer_key(SETTINGS, prompt(name)) for name in ("good", "unread", "bad", "refused")}
    with AnswerJournal(path) as journal:
        for name in ("good", "unread", "bad"):
            paid = Account(1, 10, 20, 0.25)
            journal.add(SETTINGS, keys[name], Answer(0, "", "好"), llm="writer", paid=paid)
        journal.accept([keys["good"]])
        journal.fail(keys["bad"], Failure("no-json", 1))
        journal.fail(keys["refused"], Failure("status-400", 0))
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("good", (1, 0, 0)),
        ("unread", (1, 0, 0)),
        ("bad", (0, 1, 0)),
        ("refused", (0, 1, 0)),
        ("new", (0, 0, 1)),
    ],
)
def test_a_prompt_is_known_failed_or_to_be_sent(path, name, expected):
    cost = estimate([prompt(name)], path)
    assert (cost.known, cost.failed, cost.requests) == expected
    assert (cost.prompts, cost.spent, cost.budget) == (1, 0.75, 9)
    again = estimate([prompt(name)], path, retry_failed=True)
    assert (again.failed, again.requests) == (0, expected[1] + expected[2])


def test_tokens_and_cost_are_those_of_the_requests_alone(path):
    cost = estimate([prompt("good"), prompt("bad"), prompt("one", "四个汉字")], path)
    assert (cost.tokens_in, cost.tokens_out) == (2 + 4, 5)
    assert cost.cost == pytest.approx((6 * 1000 + 5 * 2000) / 1e6)


def test_equal_prompts_share_a_request_and_variants_do_not(tmp_path):
    same = [prompt("a", "同"), prompt("b", "同"), prompt("c", "同", variant="1")]
    cost = estimate(same, tmp_path / "none.sqlite")
    assert (cost.prompts, cost.requests) == (3, 2)
    assert list(tmp_path.iterdir()) == []


def test_prompts_that_cannot_be_encoded_and_no_prompts_are_counted(tmp_path):
    assert estimate([prompt("a", "\ud800" * 3)], tmp_path / "none.sqlite").tokens_in == 2 + 3
    nothing = estimate([], tmp_path / "none.sqlite")
    assert nothing == Cost(0, 0, 0, 0, 0, 0, 0, 0, 9)


def test_a_repeated_key_and_a_damaged_journal_are_refused(path):
    with pytest.raises(ValueError, match="two prompts have the key 'a'"):
        estimate([prompt("a"), prompt("a", "别的")], path)
    path.write_bytes(b"damaged" * 500)
    with pytest.raises(JournalError, match="is damaged"):
        estimate([prompt("a")], path)


def test_a_sum_of_costs_counts_the_account_of_the_llm_once(path):
    prompts = [prompt(name) for name in ("good", "unread", "bad", "refused", "new", "other")]
    parts = [estimate([one], path) for one in prompts]
    total = estimate(prompts, path)
    assert added(parts) == replace(total, cost=pytest.approx(total.cost))
    assert added(parts[:1]) == parts[0]
