"""Every `medteb` and `mar` command in the README and the docs parses, and the examples run."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def documented_commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words and words[0] in ("medteb", "mar"):
                    found.append(shlex.join(words))
    return found


@pytest.mark.parametrize("command", sorted(set(documented_commands())))
def test_documented_command_parses(command):
    program, *arguments = shlex.split(command)
    if program == "medteb":
        from medteb_mteb.cli import app
    else:
        from mar_st.cli import app
    group = typer.main.get_command(app)
    context = group.make_context(program, arguments)
    while hasattr(group, "resolve_command"):
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, group, rest = group.resolve_command(context, rest)
        assert group is not None, f"{program} has no command {name!r}"
        context = group.make_context(name, rest, parent=context)


def test_there_are_documented_commands_of_both_programs():
    assert {command.split()[0] for command in documented_commands()} == {"medteb", "mar"}


def _main(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main()


def test_example_search():
    assert _main("search") == ["高血压的饮食", "胃镜检查前的准备", "头痛的就诊科室"]


def test_example_own_data():
    assert _main("own_data") == 1.0


def test_product_docs_name_no_private_path():
    for page in PAGES:
        assert "shared/data" not in page.read_text(encoding="utf-8"), page
