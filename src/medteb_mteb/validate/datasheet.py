"""The datasheet of an edition: how it was made, according to its manifest, its provenance and its build.

The questions are those of "Datasheets for Datasets" (T. Gebru et al., CACM 64, 2021) that files can answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.step import provenance_of
from medteb_mteb.editions import days, mappings, read_provenance
from medteb_mteb.validate.build import steps_of
from medteb_mteb.validate.page import markdown_table, plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from medteb_mteb.editions import Edition

__all__ = ["NOT_RECORDED", "datasheet"]

NOT_RECORDED = "not recorded"

Row = tuple[str, ...]


def datasheet(edition: Edition, build: Path | None = None) -> str:
    """Describe an edition in Markdown; missing records are stated as such.

    Args:
        edition: The edition; its `provenance.json` describes how it was made.
        build: Folder of the build that made it, or None. The records of its steps take precedence over the
            edition's own.

    Raises:
        BuildError: The folder is not a build, or a file of it cannot be read.
        EditionError: The edition's `provenance.json` cannot be read.
    """
    provenance = {**read_provenance(edition.path), **({} if build is None else _of_build(build))}
    lines = [f"# Datasheet of {plain(edition.task)}, edition {plain(edition.name)}"]
    answerer = ("model", "answered by", "variant", "temperature", "prompt", "date")
    for title, header, rows in (
        ("Edition", ("", ""), _edition(edition, provenance)),
        ("Texts", ("", ""), _texts(edition, provenance)),
        (
            "Candidates",
            ("retriever", "settings", "documents per query", "pool per query"),
            _candidates(provenance),
        ),
        ("Judges", ("judge", *answerer), _answerers(provenance, "judges")),
        ("LLMs that wrote texts", ("LLM", *answerer), _answerers(provenance, "writers")),
        ("Labels", ("", ""), list(_labels(provenance))),
        ("Contamination", ("", ""), _contamination(provenance)),
        ("Earlier versions", ("version", "digest", "what has changed since"), _history(edition)),
    ):
        if rows:
            lines += ["", f"## {title}", "", *markdown_table(header, rows)]
    return "\n".join(lines) + "\n"


def _of_build(build: Path) -> dict[str, Any]:
    """Gather the records of a build's steps in the form of `provenance.json`, without empty fields."""
    folders = [folder for some in steps_of(build).values() for folder in some]
    fields: dict[str, Any] = provenance_of(folders)
    leakage = build / "leakage.json"
    if leakage.is_file():
        fields["contamination"] = {"leakage": _json(leakage)}
    return {key: value for key, value in fields.items() if value}


def _edition(edition: Edition, provenance: dict[str, Any]) -> list[Row]:
    counts = ", ".join(f"{number:,} {name}" for name, number in edition.counts.items())
    seed = edition.extra.get("seed")
    known = days(mappings(provenance, "judges") + mappings(provenance, "writers"))
    return [
        ("version", edition.version),
        ("digest", edition.digest),
        ("licence", edition.licence or NOT_RECORDED),
        ("size", counts or NOT_RECORDED),
        ("seed", NOT_RECORDED if seed is None else str(seed)),
        ("days on which LLMs answered (UTC)", " to ".join(known) or NOT_RECORDED),
    ]


def _texts(edition: Edition, provenance: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        (
            f"licence of {_shown(source.get('name'))}",
            _shown(source.get("licence")) + (f", {source['url']}" if source.get("url") else ""),
        )
        for source in mappings(edition.extra, "sources") or mappings(provenance, "sources")
    ]
    if not rows:
        rows.append(("sources and their licences", NOT_RECORDED))
    versions = {
        f"none; {one['declared']}"
        if one.get("declared")
        else f"{_shown(one.get('version'))}{', strict' if one.get('strict') else ''}"
        for one in mappings(provenance, "anonymisers")
    }
    rows.append(("version of the anonymiser", ", ".join(sorted(versions)) or NOT_RECORDED))
    return rows


def _candidates(provenance: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        (str(one.get("name")), *(_shown(one.get(key)) for key in ("identity", "depth", "size")))
        for one in mappings(provenance, "retrievers")
    ]
    return rows or [(NOT_RECORDED,) * 4]


def _answerers(provenance: dict[str, Any], key: str) -> list[Row]:
    """Return the rows of judges, or of LLMs that wrote texts (there may be none of these)."""
    rows: list[Row] = []
    for one in mappings(provenance, key):
        variant = "none" if one.get("variant") == "" else _shown(one.get("variant"))
        settings = [variant, _shown(one.get("temperature")), _shown(one.get("prompt"))]
        date = " to ".join(days([one])) or NOT_RECORDED
        if date != NOT_RECORDED and one.get("undated"):
            date += f"; of {one['undated']} pairs {NOT_RECORDED}"
        rows.append((str(one.get("name")), _shown(one.get("model")), _answered_by(one), *settings, date))
    return rows or ([(NOT_RECORDED,) * 7] if key == "judges" else [])


def _answered_by(one: dict[str, Any]) -> str:
    """Return the models and fingerprints that servers stated."""
    models = {
        str(origin["model"])
        + (f" ({origin['system_fingerprint']})" if origin.get("system_fingerprint") else "")
        for origin in mappings(one, "answered")
        if origin.get("model")
    }
    return ", ".join(sorted(models)) or NOT_RECORDED


def _labels(provenance: dict[str, Any]) -> Iterator[Row]:
    records = mappings(provenance, "consensus")
    if not records and not mappings(provenance, "writers"):
        yield from ((name, NOT_RECORDED) for name in ("rule", "agreement of the judges"))
    for content in records:
        where = f", {content['name']}" if content.get("name") else ""
        listed = content.get("positive")
        positive = ", ".join(map(str, listed)) if isinstance(listed, list) else NOT_RECORDED
        yield f"rule{where}", f"{_shown(content.get('rule'))}; positive: {positive}"
        counts = _dict(content.get("labels"))
        shown = ", ".join(f"{number:,} {name}" for name, number in counts.items() if type(number) is int)
        yield f"pairs{where}", shown or NOT_RECORDED
        labels = _dict(content.get("agreement"))
        for name, estimate in labels.items():
            yield f"{name.replace('_', ' ')}{where}", _estimate(estimate)
        if not labels:
            yield f"agreement of the judges{where}", NOT_RECORDED


def _contamination(provenance: dict[str, Any]) -> list[Row]:
    content = _dict(provenance.get("contamination"))
    leakage = _dict(content.get("leakage"))
    rows: list[Row] = [(key, _shown(value)) for key, value in content.items() if key != "leakage"]
    if leakage:
        rows += [
            ("test texts compared", _shown(leakage.get("tests"))),
            ("training queries that are near-duplicates of them", _shown(leakage.get("leaks"))),
        ]
    return rows or [("test queries in training sets", NOT_RECORDED)]


def _history(edition: Edition) -> list[Row]:
    return [
        (_shown(one.get("version")), _shown(one.get("digest")), _shown(one.get("changes")))
        for one in mappings(edition.extra, "history")
    ]


def _estimate(estimate: Any) -> str:
    if not isinstance(estimate, list) or len(estimate) != 3 or estimate[0] is None:
        return NOT_RECORDED
    value, low, high = estimate
    return f"{value}" if low is None or high is None else f"{value} [{low}, {high}]"


def _shown(value: Any) -> str:
    if value is None or value in ("", {}, []):
        return NOT_RECORDED
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise BuildError(f"{file} cannot be read as a JSON object. Run the build again, or take it out.")
    return content
