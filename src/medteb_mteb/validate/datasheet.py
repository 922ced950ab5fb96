"""The datasheet of an edition: how it was made, as far as its manifest and its build have recorded it.

The questions are those of "Datasheets for Datasets" (T. Gebru et al., CACM 64, 2021) that files can answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.read import MANIFEST, STEP
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.validate.build import steps_of
from medteb_mteb.validate.page import markdown_table, plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from medteb_mteb.editions import Edition

__all__ = ["UNKNOWN", "datasheet"]

UNKNOWN = "not recorded"

Row = tuple[str, ...]


def datasheet(edition: Edition, build: Path | None = None) -> str:
    """Describe an edition in Markdown; what nobody has recorded says so.

    Args:
        edition: The edition.
        build: Folder of the build that made it, or None.

    Raises:
        BuildError: The folder is not a build, or a file of it cannot be read.
    """
    steps = (
        {} if build is None else {kind: [_read(f) for f in found] for kind, found in steps_of(build).items()}
    )
    lines = [f"# Datasheet of {plain(edition.task)}, edition {plain(edition.name)}"]
    for title, header, rows in (
        ("Edition", ("", ""), _edition(edition)),
        ("Texts", ("", ""), _texts(edition, steps)),
        (
            "Candidates",
            ("retriever", "settings", "documents per query", "pool per query"),
            _candidates(steps),
        ),
        ("Judges", ("judge", "model", "variant", "temperature", "prompt", "date"), _judges(steps)),
        ("Labels", ("", ""), list(_labels(build))),
        ("Contamination", ("", ""), _contamination(build)),
    ):
        lines += ["", f"## {title}", "", *markdown_table(header, rows)]
    return "\n".join(lines) + "\n"


def _edition(edition: Edition) -> list[Row]:
    counts = ", ".join(f"{number:,} {name}" for name, number in edition.counts.items())
    seed = edition.extra.get("seed")
    return [
        ("version", edition.version),
        ("digest", edition.digest),
        ("licence", edition.licence or UNKNOWN),
        ("size", counts or UNKNOWN),
        ("seed", UNKNOWN if seed is None else str(seed)),
        ("date", _shown(edition.extra.get("date"))),
    ]


def _texts(edition: Edition, steps: dict[str, list[dict[str, Any]]]) -> list[Row]:
    sources = edition.extra.get("sources")
    rows: list[Row] = [
        (f"licence of {_shown(source.get('name'))}", _shown(source.get("licence")))
        for source in (sources if isinstance(sources, list) else [])
        if isinstance(source, dict)
    ]
    if not rows:
        rows.append(("sources and their licences", UNKNOWN))
    versions = {
        f"{_shown(step.get('settings', {}).get('version'))}{strict}"
        for step in _before(steps)
        if step.get("step") == "anonymize"
        for strict in [", strict" if _dict(step.get("settings")).get("strict") else ""]
    }
    judged = [step for step in steps.get("judge", []) if "already_anonymous" in step]
    if not versions and any(step["already_anonymous"] for step in judged):
        versions = {"none; texts were declared to hold nothing personal"}
    rows.append(("version of the anonymiser", ", ".join(sorted(versions)) or UNKNOWN))
    return rows


def _before(steps: dict[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """All steps that are recorded, also those before a step."""
    for found in steps.values():
        for step in found:
            yield step
            before = step.get("before")
            parts = before.values() if isinstance(before, dict) else [before]
            for part in parts:
                yield from (
                    one for one in (part if isinstance(part, list) else [part]) if isinstance(one, dict)
                )


def _candidates(steps: dict[str, list[dict[str, Any]]]) -> list[Row]:
    rows: list[Row] = []
    for step in steps.get("pool", []):
        settings = _dict(step.get("settings"))
        depth, size = _shown(settings.get("depth")), _shown(settings.get("size"))
        for name, identity in _dict(step.get("retrievers")).items():
            rows.append((str(name), _shown(identity), depth, size))
    return rows or [(UNKNOWN,) * 4]


def _judges(steps: dict[str, list[dict[str, Any]]]) -> list[Row]:
    rows = []
    for step in steps.get("judge", []):
        for name, found in sorted(_dict(step.get("settings")).items()):
            settings = _dict(found)
            model = settings.get("model") or settings.get("cross_encoder")
            rest = [_shown(settings.get(key)) for key in ("variant", "temperature", "prompt")]
            rows.append((str(name), _shown(model), *rest, _shown(settings.get("date"))))
    return rows or [(UNKNOWN,) * 6]


def _labels(build: Path | None) -> Iterator[Row]:
    files = [] if build is None else sorted(build.glob("*/agreement.json"))
    if not files:
        yield from ((name, UNKNOWN) for name in ("rule", "agreement of the judges"))
    for file in files:
        content = _json(file)
        where = f", {file.parent.name}" if len(files) > 1 else ""
        listed = content.get("positive")
        positive = ", ".join(map(str, listed)) if isinstance(listed, list) else UNKNOWN
        yield f"rule{where}", f"{_shown(content.get('rule'))}; positive: {positive}"
        counts = _dict(content.get("labels"))
        shown = ", ".join(f"{number:,} {name}" for name, number in counts.items() if type(number) is int)
        yield f"pairs{where}", shown or UNKNOWN
        labels = _dict(_dict(content.get("agreement")).get("labels"))
        for name, estimate in labels.items():
            yield f"{name.replace('_', ' ')}{where}", _estimate(estimate)
        if not labels:
            yield f"agreement of the judges{where}", UNKNOWN


def _contamination(build: Path | None) -> list[Row]:
    file = None if build is None else build / "leakage.json"
    if file is None or not file.is_file():
        return [("test queries in training sets", UNKNOWN)]
    content = _json(file)
    return [
        ("test texts compared", _shown(content.get("tests"))),
        ("training queries that are near-duplicates of them", _shown(content.get("leaks"))),
    ]


def _estimate(found: Any) -> str:
    if not isinstance(found, list) or len(found) != 3 or found[0] is None:
        return UNKNOWN
    value, low, high = found
    return f"{value}" if low is None or high is None else f"{value} [{low}, {high}]"


def _shown(value: Any) -> str:
    if value is None or value in ("", {}, []):
        return UNKNOWN
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read(folder: Path) -> dict[str, Any]:
    """Return the record of a step; the manifest has all that `step.json` has, once the step is complete."""
    return _json(folder / MANIFEST if (folder / MANIFEST).is_file() else folder / STEP)


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise BuildError(f"{file} cannot be read as a JSON object. Run the build again, or take it out.")
    return content
