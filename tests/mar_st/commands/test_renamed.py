"""Tests of the errors for former names of commands and options, which give the new name."""

from __future__ import annotations

import sys

import pytest
import typer.main

from mar_st.cli import app, main


@pytest.fixture
def error(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["mar", *args])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert (stop.value.code, out) == (2, "")
        assert err.startswith("mar: error: ")
        assert err.count("\n") == 1
        return err

    return call


@pytest.mark.parametrize(
    ("args", "new"),
    [
        (["index", "vectors", "out"], "'mar index build VECTORS OUT'"),
        (["index", "vectors", "out", "--kind", "hnsw"], "'mar index build VECTORS OUT'"),
        (["index", "--kind", "hnsw", "vectors", "out"], "'mar index build VECTORS OUT'"),
        (["index-update", "index", "--compact"], "'mar index update'"),
        (["index-tune", "index", "--queries", "q.jsonl"], "'mar index tune'"),
        (["index-match", "index"], "'mar index match'"),
        (["index", "build", "v", "i", "--bm25"], "leave out --bm25"),
        (["mine", "d", "o", "--model", "bm25", "--negatives", "4"], "--num-negatives"),
        (["mine", "d", "o", "--model", "bm25", "--window", "2:50"], "--range-min 1 --range-max 50"),
        (["mine", "d", "o", "--model", "bm25", "--margin", "0.1"], "--absolute-margin"),
        (["mine", "d", "o", "--model", "bm25", "--choose", "top"], "--sampling-strategy"),
        (["mine", "d", "o", "--model", "bm25", "--precision", "bf16"], "--dtype"),
        (["mine", "d", "o", "--model", "bm25", "--dtype", "bf16"], "bf16 is bfloat16"),
        (["mine", "d", "o", "--model", "bm25", "--fill"], "leave out --fill"),
        (["align", "--teacher", "t", "--out", "o", "--precision", "bf16"], "--dtype"),
        (["encode", "m", "c", "o", "--precision", "bf16"], "--dtype"),
        (["encode", "m", "c", "o", "--dtype", "int8"], "--precision"),
        (["encode", "m", "c", "o", "--dtype", "float16"], "--precision"),
        (["export", "m", "o", "--precision", "int8"], "--weight-format"),
        (["train", "mar-mini", "--no-fit"], "--skip-memory-check"),
        (["search", "index", "头疼", "--query", "query-2"], "--query-encoder"),
    ],
)
def test_a_former_name_is_one_error_that_says_the_new_one(error, args, new):
    assert new in error(*args)


def test_other_mistakes_are_explained_by_click(error):
    assert "No such option: --nope" in error("mine", "d", "o", "--model", "bm25", "--nope")
    assert "Invalid value for '--seed'" in error("mine", "d", "o", "--model", "bm25", "--seed", "x")


def _commands(command, path=()):
    for name, part in getattr(command, "commands", {}).items():
        yield from _commands(part, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


def test_switches_have_one_form_and_options_a_full_help():
    commands = dict(_commands(typer.main.get_command(app)))
    assert {"index build", "index update", "index tune", "index match", "index info", "mine"} <= set(commands)
    options = [
        (name, option)
        for name, command in commands.items()
        for option in command.params
        if option.param_type_name == "option" and option.name != "help"
    ]
    assert [(name, option.name) for name, option in options if option.secondary_opts] == []
    assert [(name, option.name) for name, option in options if not (option.help or "").endswith(".")] == []
    for shared in ("--json", "--seed", "--overwrite", "--save-steps", "--encoder"):
        texts = {option.help for name, option in options if shared in option.opts and name != "serve"}
        assert len(texts) == 1, (shared, texts)
