"""Options that several commands share: each means the same wherever it is accepted."""

from __future__ import annotations

import pytest
import typer.main

from medteb_mteb.cli import app

SHARED = ("--json", "--quiet", "--retry-failed", "--already-anonymous", "--llm", "--store", "--repair")


def commands(group=None, path=()):
    """Every command of `medteb` with its words."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def uses(flag):
    return {
        " ".join(path): parameter
        for path, command in commands()
        for parameter in command.params
        if flag in parameter.opts
    }


@pytest.mark.parametrize("flag", SHARED)
def test_a_shared_option_has_the_same_forms_everywhere(flag):
    found = {command: one for command, one in uses(flag).items() if command != "validate"}  # writes a file
    assert len(found) > 1
    assert len({tuple(sorted(parameter.opts)) for parameter in found.values()}) == 1
    assert len({parameter.is_flag for parameter in found.values()}) == 1


@pytest.mark.parametrize("command", ["triples", "sts", "judge", "synthesize queries", "synthesize tasks"])
@pytest.mark.parametrize(
    "flag", ["--journal", "--dry-run", "--retry-failed", "--repair", "--json", "--quiet"]
)
def test_what_asks_an_llm_can_be_estimated_resumed_and_repaired(command, flag):
    assert command in uses(flag)


@pytest.mark.parametrize(
    "args", [("pool", "q", "d", "out", "-r", "bm25"), ("round-trip", "p", "out", "-r", "bm25")]
)
def test_a_batch_holds_a_text_or_more(refused, args):
    assert "Invalid value for '--batch-size'" in refused(*args, "--batch-size", "0")
