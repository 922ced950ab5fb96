"""Tests of the options that several commands share: the values they take, and those they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mar_st.commands import options


@pytest.fixture
def parse():
    """Runs a command with every kind of option; returns its result and what the command was given."""
    app, given = typer.Typer(rich_markup_mode=None), {}  # plain errors, whatever the terminal is

    @app.command()
    def command(
        index: options.IndexAddress,
        overrides: options.Overrides = None,
        query_encoders: options.QueryEncoders = None,
        threads: options.Threads = None,
        batch_size: options.EncodeBatchSize = 64,
        epochs: options.Epochs = 1.0,
        save_steps: options.SaveSteps = 100,
        dtype: options.Dtype = "float32",
        store: options.Store = None,
        as_json: options.AsJson = False,
        overwrite: options.Overwrite = False,
        seed: options.Seed = 0,
    ):
        given.update(locals())

    def run(*arguments):
        given.clear()
        return CliRunner().invoke(app, list(arguments)), given

    return run


@pytest.mark.parametrize(
    "address", ["milvus:http://localhost:19530/passages", "milvus:data//index.db", "folder/with//slashes"]
)
def test_an_address_is_passed_on_unchanged(parse, address):
    result, given = parse(address)
    assert (result.exit_code, given["index"]) == (0, address)


def test_options_that_may_be_repeated_keep_their_order(parse):
    _, given = parse(
        "i", "--set", "b=1", "--query-encoder", "query-2", "--set", "a=x y", "--query-encoder", "query"
    )
    assert given["overrides"] == ["b=1", "a=x y"]
    assert given["query_encoders"] == ["query-2", "query"]
    _, given = parse("i")
    assert not given["overrides"]
    assert not given["query_encoders"]


@pytest.mark.parametrize(
    ("option", "value", "name", "taken"),
    [
        ("--threads", "1", "threads", 1),
        ("--batch-size", "1", "batch_size", 1),
        ("--epochs", "0.01", "epochs", 0.01),
        ("--save-steps", "1", "save_steps", 1),
        ("--dtype", "bfloat16", "dtype", "bfloat16"),
        ("--store", "a/b", "store", Path("a/b")),
        ("--seed", "-1", "seed", -1),
    ],
)
def test_the_smallest_values_are_taken(parse, option, value, name, taken):
    result, given = parse("i", option, value)
    assert result.exit_code == 0, result.output
    assert given[name] == taken


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--threads", "0"), ("--threads", "two"), ("--batch-size", "0"), ("--epochs", "0"),
        ("--save-steps", "0"), ("--dtype", "float16"), ("--seed", "1.5"),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_with_the_name_of_the_option(parse, option, value):
    result, given = parse("i", option, value)
    assert result.exit_code == 2
    assert option in result.output
    assert given == {}


def test_switches_are_off_unless_they_are_given(parse):
    _, given = parse("i")
    assert (given["as_json"], given["overwrite"]) == (False, False)
    _, given = parse("i", "--json", "--overwrite")
    assert (given["as_json"], given["overwrite"]) == (True, True)
    result, _ = parse("i", "--no-json")
    assert result.exit_code == 2
