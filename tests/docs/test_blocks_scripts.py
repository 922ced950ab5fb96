"""Commands of the docs that measure: the scripts' own parsers read their arguments, and nothing is run."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
import sys

import pytest

from tests.docs.blocks import BLOCKS, ROOT

LINES = [
    line
    for block in BLOCKS.values()
    if block.language == "bash"
    for line in block.lines()
    if "python benchmarks/" in line
]


class ReadError(Exception):
    """Ends a script when its arguments are read."""


@pytest.mark.parametrize("line", LINES)
def test_arguments_of_a_script_parse(line, monkeypatch):
    words = shlex.split(re.sub(r"\.\.\.", "x", line), comments=True)
    script = next(place for place, word in enumerate(words) if word.endswith(".py"))
    parse = argparse.ArgumentParser.parse_args

    def read(self, *args):
        parse(self, *args)
        raise ReadError

    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "argv", words[script:])
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", read)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with pytest.raises(ReadError):
        runpy.run_path(str(ROOT / words[script]), run_name="__main__")
