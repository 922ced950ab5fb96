"""A validation as a page: Markdown for a card or a paper, HTML for people."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.validate.findings import Finding, Number, Report, Table

__all__ = ["markdown_table", "plain", "to_html", "to_markdown"]

_COLOURS = {"ok": "#1a7f37", "warning": "#9a6700", "fail": "#cf222e", "not known": "#57606a"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:.5rem 0 1rem}"
    "td,th{border:1px solid #d0d7de;padding:.25rem .6rem;text-align:left;vertical-align:top}"
    "code{word-break:break-all}"
    + "".join(f".{name.replace(' ', '-')}{{color:{colour}}}" for name, colour in _COLOURS.items())
)


def to_markdown(report: Report) -> str:
    """Return the page as GitHub Markdown; it ends with a line break."""
    lines = [
        f"# Validation of {plain(report.name)}",
        "",
        f"{plain(_head(report))}, data `{report.revision}`.",
        "",
    ]
    lines += [f"**{_summary(report)}**", ""]
    rows = [
        (f.title, f"**{f.verdict}**" if f.verdict == "fail" else f.verdict, f.reason) for f in report.findings
    ]
    lines += markdown_table(("point", "verdict", "reason"), rows)
    for finding in report.findings:
        if not finding.numbers and finding.table is None:
            continue
        lines += ["", f"## {plain(finding.title)}", ""]
        if finding.table is not None and finding.table.rows:
            lines += [*markdown_table(finding.table.header, finding.table.rows), ""]
        numbers = [(name, _number(value)) for name, value in _unshown_numbers(finding)]
        lines += markdown_table(("number", "value"), numbers) if numbers else []
        while not lines[-1]:
            lines.pop()
    return "\n".join(lines) + "\n"


def to_html(report: Report) -> str:
    """Return the page as one HTML file without scripts or other files."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>Validation of {escape(report.name)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Validation of {escape(report.name)}</h1>",
        f"<p>{escape(_head(report))}, data <code>{escape(report.revision)}</code>.</p>",
        f"<p><strong>{escape(_summary(report))}</strong></p>",
        "<table><tr><th>point</th><th>verdict</th><th>reason</th></tr>",
    ]
    for finding in report.findings:
        style = finding.verdict.replace(" ", "-")
        parts.append(
            f'<tr><td>{escape(finding.title)}</td><td class="{style}">{finding.verdict}</td>'
            f"<td>{escape(finding.reason)}</td></tr>"
        )
    parts.append("</table>")
    for finding in report.findings:
        if not finding.numbers and finding.table is None:
            continue
        parts.append(f"<h2>{escape(finding.title)}</h2>")
        if finding.table is not None and finding.table.rows:
            parts.append(_html_table(finding.table))
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(_number(value))}</td></tr>"
            for name, value in _unshown_numbers(finding)
        )
        parts.append(f"<table>{rows}</table>" if rows else "")
    return "\n".join(part for part in [*parts, "</body></html>"] if part) + "\n"


def _head(report: Report) -> str:
    return f"{report.kind}, edition {report.edition}" if report.edition else f"{report.kind}, no manifest"


def _summary(report: Report) -> str:
    return ", ".join(f"{verdict}: {number}" for verdict, number in report.counts().items() if number)


def _unshown_numbers(finding: Finding) -> list[tuple[str, Number]]:
    """Return the numbers that a table does not show already."""
    shown = {row[0] for row in finding.table.rows} if finding.table is not None else set()
    return [
        (name, value)
        for name, value in finding.numbers.items()
        if not any(name.startswith(f"{row}, ") for row in shown)
    ]


def _number(value: Number) -> str:
    if value is None:
        return "not known"
    return f"{value:,}" if isinstance(value, int) else str(value)


def plain(text: str) -> str:
    """Return a text from a folder on one line, with Markdown and HTML escaped."""
    flat = " ".join(text.split())
    flat = "".join(char if char.isprintable() else "?" for char in flat)
    return re.sub(r"([\\`*<>|]|(?<=\])\()", r"\\\1", flat)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a GitHub table whose cells hold no Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cell(text: str) -> str:
        return text if text == "**fail**" else plain(text)

    rule = "|" + "---|" * len(header)
    return [line(header), rule, *(line([cell(text) for text in row]) for row in rows)]


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<table><tr>{head}</tr>{rows}</table>"
