"""Every code block of the README and the docs is executed, or cannot be for a reason that is stated."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
import yaml

from tests.docs.blocks import BLOCKS, EXECUTED, PARTS, is_marked, of

RUN = [step if isinstance(step, str) else step[0] for steps in EXECUTED.values() for step in steps]

#: Blocks that another test executes.
ELSEWHERE = {
    **dict.fromkeys(of("how-to/other-libraries.md", 0, 1, 2, 3, 4, 5), "tests/test_docs.py"),
    **dict.fromkeys(
        [*PARTS, *of("reference/recipes.md", 1, 4, 5), *of("how-to/ablate.md", 1), *of("how-to/judge.md", 4)],
        "tests/docs/test_blocks_recipes.py",
    ),
    "how-to/build.md:2": "tests/docs/test_blocks_recipes.py",
    "concepts/architecture.md:0": "tests/medteb_mteb/curation/pipeline/test_registry.py",
    "concepts/architecture.md:1": "tests/mar_st/index/test_registry.py",
}

#: Blocks that are parsed alone, beside those of which every line is in `NOT_RUN`, and why.
PARSED = {
    **dict.fromkeys(
        of("how-to/other-libraries.md", 6, 7),
        "asks a running server; tests/mar_st/serve/test_server.py does so with the same client",
    ),
    "concepts/training-runs.md:0": "a line of a method",
    "reference/names.md:0": "takes the plugin out of this process; tests/medteb_mteb/plugin does so",
}


def test_every_block_is_executed_or_listed_with_a_reason():
    marked = {
        name
        for name, block in BLOCKS.items()
        if block.language == "bash" and all(is_marked(line) for line in block.lines())
    }
    times = Counter([*RUN, *ELSEWHERE, *PARSED, *marked])
    assert sorted(set(BLOCKS) - set(times)) == []
    assert sorted(set(times) - set(BLOCKS)) == []
    assert [name for name, count in times.items() if count > 1] == []


@pytest.mark.parametrize("name", [name for name, block in BLOCKS.items() if block.language != "bash"])
def test_blocks_of_python_and_yaml_parse(name):
    if BLOCKS[name].language == "python":
        ast.parse(BLOCKS[name].code)
    else:
        assert yaml.safe_load(BLOCKS[name].code)
