"""Provenance of labels: judges, retrievers, anonymisers and the rule, from the records of earlier steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import lineage, read_json
from medteb_mteb.curation.files.read import MANIFEST, STEP_FILE
from medteb_mteb.editions.provenance import read_provenance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "anonymisers_in",
    "consensus_of",
    "judge_entry",
    "provenance_of_judging",
    "provenance_of_labels",
    "provenance_of_texts",
    "retrievers_in",
]

_SHOWN_SETTINGS = ("variant", "temperature", "prompt", "extra")


def provenance_of_judging(source: str | Path) -> dict[str, Any]:
    """Return judges, retrievers and anonymisers of judgements of `medteb judge`; else empty.

    Args:
        source: Folder of the judging, or its `judgements.jsonl`.
    """
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    if not (folder / STEP_FILE).is_file():
        return {}
    # Once the step is complete, the manifest contains everything in `step.json`.
    manifest = read_json(folder / MANIFEST if (folder / MANIFEST).is_file() else folder / STEP_FILE)
    if manifest.get("step") != "judge":
        return {}
    recorded = _object(read_provenance(folder).get("judges"))
    judges = []
    for name, settings in sorted(_object(manifest.get("settings")).items()):
        record = _object(recorded.get(name))
        undated = {"undated": record["undated"]} if record.get("undated") else {}
        judges.append(
            {**judge_entry(name, _object(settings)), "answered": record.get("answered", []), **undated}
        )
    before = _object(manifest.get("before"))
    return {
        "judges": judges,
        "retrievers": retrievers_in(_steps(before, "pools")),
        "anonymisers": anonymisers_in((*_steps(before, "queries"), *_steps(before, "documents")))
        or ([{"declared": "texts hold nothing personal"}] if manifest.get("already_anonymous") else []),
    }


def judge_entry(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and settings of a judge in the form of `provenance.json`.

    Args:
        name: The judge.
        settings: Everything that its grades depend on, as returned by `Judge.description`.
    """
    model = settings.get("model") or settings.get("cross_encoder")
    return {
        "name": name,
        "model": model,
        **{key: settings[key] for key in _SHOWN_SETTINGS if key in settings},
    }


def provenance_of_labels(source: str | Path) -> dict[str, Any]:
    """Return the same for labels of `medteb consensus`, with the rule and the judges' agreement.

    Args:
        source: Folder of the labels, or its `labels.jsonl`.
    """
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    content = read_provenance(folder)
    agreement = folder / "agreement.json"
    return {**content, **({"consensus": [consensus_of(agreement)]} if agreement.is_file() else {})}


def provenance_of_texts(*sources: str | Path) -> dict[str, Any]:
    """Return the anonymisers that were applied to some texts."""
    return {"anonymisers": anonymisers_in(step for source in sources for step in lineage(source))}


def consensus_of(file: Path) -> dict[str, Any]:
    """Return rule, numbers of labels and agreement from an `agreement.json`."""
    content = read_json(file)
    names = ("rule", "positive", "options", "labels")
    recorded: dict[str, Any] = {key: content[key] for key in names if key in content}
    return {**recorded, "agreement": _object(_object(content.get("agreement")).get("labels"))}


def retrievers_in(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the retrievers of the pools among some steps."""
    return [
        {"name": name, "identity": identity, **{key: settings.get(key) for key in ("depth", "size")}}
        for step in steps
        if step.get("step") == "pool"
        for settings in [_object(step.get("settings"))]
        for name, identity in _object(step.get("retrievers")).items()
    ]


def anonymisers_in(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return anonymisers among some steps, each once."""
    anonymisers = []
    for step in steps:
        if step.get("step") == "anonymize":
            settings = _object(step.get("settings"))
            one = {"version": settings.get("version"), "strict": bool(settings.get("strict"))}
            if one not in anonymisers:
                anonymisers.append(one)
    return anonymisers


def _steps(before: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    steps = before.get(key)
    return [one for one in steps if isinstance(one, dict)] if isinstance(steps, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
