"""Pages of the site that are generated: help of commands, fields of recipes, cards of tasks, results."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: Files outside of `docs` that pages link to.
OUTSIDE = (
    *(
        f"deploy/{name}"
        for name in ("Dockerfile", "compose.yaml", "grafana.json", "mar.service", "nginx.conf")
    ),
    "examples/clinic/build.yaml",
    "examples/loop/loop.yaml",
    "models/mar-zh/README.md",
    "models/mar-zh/src/mar_zh/sample/README.md",
    "src/mar_st/models/mar-mini/README.md",
)

PROGRAMS = {"mar": "mar_st.cli", "medteb": "medteb_mteb.cli"}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    pages = {f"reference/commands-{name}.md": commands(name) for name in PROGRAMS}
    pages["reference/recipe-fields.md"] = recipe_fields()
    pages["reference/task-cards.md"] = task_cards()
    pages["changelog.md"] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links out of `docs`, and back into it, to where the files are in the site."""
    markdown = re.sub(r"\]\(\.\./((?:\.\./)*(?:deploy|examples|models|src)/)", r"](\1", markdown)
    return re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)


def on_post_build(config: Any) -> None:
    """Add the project's own results as pages of `medteb site`."""
    from medteb_mteb.commands.compare import SiteSettings, site

    results = ROOT / "benchmarks" / "results"
    site(
        SiteSettings(
            results=(results,),
            out=Path(config["site_dir"]) / "results",
            data=(ROOT / "models" / "mar-zh" / "src" / "mar_zh" / "sample",),
            about=results / "about.yaml",
            title="Results of medteb",
        )
    )


def task_cards() -> str:
    """Return the page with the card of every task, from its metadata."""
    from medteb_mteb.tasks import TASKS

    lines = ["# Cards of all tasks", "", "[Benchmarks](../benchmarks.md) puts them in context.", ""]
    for of in (task.metadata for task in TASKS):
        codes = of.eval_langs if isinstance(of.eval_langs, list) else chain(*of.eval_langs.values())
        facts = {
            "type": of.type, "main score": of.main_score, "languages": ", ".join(dict.fromkeys(codes)),
            "data": f"{of.dataset['path']} at {of.dataset['revision']}", "licence": of.license,
            "labels": of.annotations_creators, "reference": of.reference,
            "adapted from": ", ".join(of.adapted_from or ()),
        }  # fmt: skip
        lines += [f"## {of.name}", "", str(of.description), ""]
        lines += [*(f"- {key}: {value}" for key, value in facts.items() if value), ""]
    return "\n".join(lines)


def commands(program: str) -> str:
    """Return a page with the help of every command of a program."""
    from importlib import import_module

    import typer
    from typer.testing import CliRunner

    app = import_module(PROGRAMS[program]).app
    lines = [f"# `{program}`: all commands", ""]
    for path in _leaves(typer.main.get_command(app)):
        shown = CliRunner().invoke(app, [*path, "--help"], terminal_width=100, prog_name=program)
        if shown.exit_code:
            raise RuntimeError(f"{program} {' '.join(path)} --help failed: {shown.output}")
        lines += [f"## {program} {' '.join(path)}", "", "```text", shown.output.strip(), "```", ""]
    return "\n".join(lines)


def _leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        return [path]
    return [leaf for name, sub in sorted(inner.items()) for leaf in _leaves(sub, (*path, name))]


def recipe_fields() -> str:
    """Return a page with every field that a recipe may have, from its schema."""
    from mar_st.recipes.schema import Recipe

    schema = Recipe.model_json_schema()
    lines = [
        "# All fields of a recipe", "",
        "From the schema that recipes are checked against. [How recipes are written](../recipes.md)", "",
    ]  # fmt: skip
    for name, part in [("Recipe", schema), *schema["$defs"].items()]:
        kind = part.get("properties", {}).get("stage", {}).get("const")
        title = f"Stage `{kind}`" if kind else f"`{name}`"
        summary = str(part.get("description", "")).split("\n\n")[0].replace("\n", " ")
        lines += [f"## {title}", "", summary, "", "| field | type | default | meaning |", "|---|---|---|---|"]
        required = part.get("required", [])
        for field, value in part.get("properties", {}).items():
            written = json.dumps(value.get("default"), ensure_ascii=False)
            default = "required" if field in required else _code(written)
            meaning = _cell(value.get("description", ""))
            lines.append(f"| `{field}` | {_type(value)} | {default} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _type(value: dict[str, Any]) -> str:
    """Name a JSON type for a cell of a table."""
    if "$ref" in value:
        return _code(value["$ref"].rsplit("/", 1)[-1])
    if "enum" in value:
        return " or ".join(_code(str(choice)) for choice in value["enum"])
    if "const" in value:
        return _code(str(value["const"]))
    for several in ("anyOf", "oneOf"):
        if several in value:
            return " or ".join(dict.fromkeys(_type(one) for one in value[several]))
    if value.get("type") == "array":
        items = value.get("items")
        return f"list of {_type(items)}" if items else "list"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"mapping to {_type(inner)}" if isinstance(inner, dict) else "mapping"
    return str(value.get("type", "any"))


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
