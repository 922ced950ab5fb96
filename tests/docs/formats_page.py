"""The page of file formats as data, and checks of files and keys against it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "files.md"

# Sections of the page.
DATA, EXPORT, BUILD = "Data folder and edition", "Exported query encoder", "Settings of a build"
RESULTS, STUDY, TEXTS = "Results of `medteb run`", "Ablation study", "Texts of a step"

#: Field -> True if it is always there.
Fields = dict[str, bool]


class PageTable(NamedTuple):
    section: str
    header: list[str]
    rows: list[list[str]]


@cache
def page_tables() -> list[PageTable]:
    """All tables of the page, each with the title of its section."""
    tables: list[PageTable] = []
    section, inside = "", False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif cells and not inside:
            tables.append(PageTable(section, cells, []))
        elif cells and set(line) - set("|-"):
            tables[-1].rows.append(cells)
        inside = bool(cells)
    return tables


def names(cell: str) -> Fields:
    """Names in code of a cell; a question mark behind one marks an optional one."""
    return {name: not mark for name, mark in re.findall(r"`([^`]+)`(\?)?", cell)}


def fields_on_page(section: str, what: str) -> Fields:
    """Fields of an object, from a table of its own or from a row of a table of objects."""
    for table in page_tables():
        if table.section != section:
            continue
        if table.header[0] == f"field of {what}":
            fields: Fields = {}
            for name, kind, _ in table.rows:
                fields |= dict.fromkeys(names(name), "optional" not in kind)
            return fields
        if table.header == ["object", "fields", "meaning"]:
            for name, given, _ in table.rows:
                if name == what:
                    return names(given)
    raise AssertionError(f"the section {section!r} has no fields of {what}")


def rows_on_page(section: str, first: str) -> dict[str, str]:
    """First and second cell of the rows of a table whose first column has this title."""
    (table,) = [one for one in page_tables() if (one.section, one.header[0]) == (section, first)]
    return {row[0]: row[1] for row in table.rows}


def pattern(name: str) -> re.Pattern[str]:
    """A file as the page writes it: `N`s are digits, other words in capitals are names."""

    def replaced(word: re.Match[str]) -> str:
        if word.group() in ("README", "S"):
            return word.group()
        return r"\d+" if set(word.group()) == {"N"} else "[^/]+"

    expression = re.sub(r"(?<![A-Za-z])[A-Z]+(?![A-Za-z])", replaced, re.escape(name))
    return re.compile(f"{expression}.*" if name.endswith("/") else expression)


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def check_files(folder: Path, section: str, first: str = "file", *, but: Sequence[str] = ()) -> None:
    """The files of a folder are those of the page, and all of these that are not optional are there.

    Args:
        folder: The folder.
        section: Section of the page.
        first: Title of the first column of the table.
        but: Files of the table that belong to another variant of the format.
    """
    listed = rows_on_page(section, first)
    files = files_below(folder)
    every = [pattern(name) for cell in listed for name in names(cell)]
    assert [name for name in files if not any(one.fullmatch(name) for one in every)] == []
    for cell, content in listed.items():
        if re.match("optional|only (while|after|during)", content):
            continue
        for name in names(cell):
            assert name in but or any(pattern(name).fullmatch(one) for one in files), f"no {name}"


def check_keys(section: str, what: str, content: Mapping[str, Any]) -> None:
    """The keys that were written are those of the page."""
    check_known(fields_on_page(section, what), content)


def check_known(on_page: Fields, content: Iterable[str]) -> None:
    written = set(content)
    assert written - set(on_page) == set()
    assert {name for name, needed in on_page.items() if needed} - written == set()


def read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
