"""The estimate that a dry run prints."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from medteb_mteb.commands.costs import print_cost
from medteb_mteb.curation.llm import Cost

COST = Cost(prompts=10, known=3, failed=1, requests=6, tokens_in=1200, tokens_out=300, cost=0.01234567,
            spent=0.0, budget=None)  # fmt: skip


def test_the_text_says_that_nothing_was_sent(capsys):
    print_cost(COST, as_json=False)
    text = capsys.readouterr().out
    assert text == (
        "10 prompts, 3 in the journal, 1 failed before; 6 requests, about 1200 tokens in, 300 out, "
        "cost 0.01235; nothing was sent\n"
    )


def test_a_budget_is_shown_with_the_amount_that_was_spent(capsys):
    print_cost(Cost(**asdict(COST) | {"spent": 1.5, "budget": 20.0}), as_json=False)
    assert "cost 0.01235 (spent 1.5 of 20); nothing was sent" in capsys.readouterr().out


@pytest.mark.parametrize("budget", [None, 2.0])
def test_json_has_every_field(capsys, budget):
    cost = Cost(**asdict(COST) | {"budget": budget})
    print_cost(cost, as_json=True)
    assert json.loads(capsys.readouterr().out) == asdict(cost)
