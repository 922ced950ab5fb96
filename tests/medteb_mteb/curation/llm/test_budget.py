"""Budgets of an LLM, in money and in tokens."""

from __future__ import annotations

import random

import pytest

from medteb_mteb.curation.llm import LLM, Account
from medteb_mteb.curation.llm.budget import Budget, tokens_of

COMMON = {"name": "writer", "model": "writer", "base_url": "http://127.0.0.1:9/v1"}


def budget(account=None, **settings):
    return Budget(LLM.model_validate({**COMMON, **settings}), account or Account())


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("高血压", 3), ("\ud800", 1), ("🩺", 2)]
)
def test_a_chinese_character_or_three_letters_count_as_a_token(text, tokens):
    assert tokens_of(text) == tokens


@pytest.mark.parametrize(
    "limits", [{"budget": 1.0}, {"budget_tokens": 700}, {"budget": 1.0, "budget_tokens": 700}]
)
def test_neither_limit_is_exceeded_in_any_order_of_requests(limits):
    draw = random.Random(0)
    ours, pending, refused = budget(price_in=1000.0, price_out=2000.0, **limits), [], 0
    for _ in range(500):
        if pending and draw.random() < 0.5:
            tokens = pending.pop(draw.randrange(len(pending)))
            ours.free(tokens)
            ours.pay(draw.randint(0, tokens[0]), draw.randint(0, tokens[1]))
        else:
            tokens = (draw.randint(0, 20), draw.randint(0, 20))
            held = ours.hold(*tokens)
            if held is not None:
                pending.append(held)
            else:
                refused += 1
        held = [sum(one) for one in zip(*pending, strict=True)] or [0, 0]
        assert ours.spent + (held[0] * 1000 + held[1] * 2000) / 1e6 <= limits.get("budget", 9e9) + 1e-9
        assert ours.tokens + sum(held) <= limits.get("budget_tokens", 9e9)
    assert refused > 100


def test_a_released_amount_can_be_held_again():
    ours = budget(budget_tokens=10)
    held = ours.hold(6, 4)
    assert held == (6, 4)
    assert not ours.hold(0, 1)
    ours.free(held)
    assert ours.hold(5, 5)


def test_the_first_answer_is_awaited_before_a_second_request_is_sent():
    ours = budget(budget_tokens=1000)
    held = ours.hold(6, 4)
    assert ours.hold(6, 4) is None
    ours.free(held)
    ours.pay(6, 40)
    assert ours.hold(6, 4) == (6, 40)
    assert ours.hold(6, 50) == (6, 50)


def test_an_average_answer_of_earlier_runs_is_expected_again():
    ours = budget(Account(answers=2, tokens_in=20, tokens_out=61), budget_tokens=1000)
    assert ours.hold(10, 5) == (10, 31)


def test_without_a_limit_requests_are_sent_at_once():
    ours = budget()
    assert [ours.hold(6, 4) for _ in range(3)] == [(6, 4)] * 3


def test_earlier_runs_count_and_a_request_that_fits_exactly_is_held():
    paid = Account(answers=1, tokens_in=600, tokens_out=0, cost=0.5)
    assert budget(paid, budget=1.0, price_in=1000.0).hold(500, 0)
    assert not budget(paid, budget=1.0, price_in=1000.0).hold(501, 0)
    assert budget(paid, budget_tokens=601).hold(1, 0)
    assert not budget(paid, budget_tokens=600).hold(1, 0)
    assert budget(paid).hold(10**9, 10**9)


def test_the_reason_names_what_was_spent_and_every_limit():
    paid = Account(tokens_in=500, tokens_out=100, cost=0.5)
    assert budget(paid, budget=0.75, price_in=1.0).exhausted() == "0.5 of its budget of 0.75 is spent"
    assert budget(paid, budget_tokens=700).exhausted() == "600 of its 700 tokens are spent"
    both = budget(paid, budget=0.75, budget_tokens=700, price_in=1.0).exhausted()
    assert both == "0.5 of its budget of 0.75 is spent, 600 of 700 tokens"
