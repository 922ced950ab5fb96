"""Settings of a task in a data folder, from its card and its manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from medteb_mteb.editions import MANIFEST_NAME, Edition
from medteb_mteb.folders.problems import FolderError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PINNED_SETTINGS", "FolderSettings", "TaskType", "read_settings"]

TaskType = Literal["Retrieval", "Reranking", "STS", "PairClassification", "Classification", "Clustering"]

_SETTING_KEYS = ("name", "type", "prompt", "main_score", "languages", "domains", "description")
#: Settings that change scores: a manifest pins them.
PINNED_SETTINGS = ("type", "prompt", "main_score")


@dataclass(frozen=True)
class FolderSettings:
    """Settings of a task from the manifest, or from the ``medteb:`` mapping of the README header.

    The Hub's ``language`` key of that header gives the languages if these settings do not.
    """

    name: str | None = None
    type: TaskType | None = None
    prompt: str | dict[str, str] | None = None
    main_score: str | None = None
    languages: list[str] = field(default_factory=list)
    hub_languages: bool = False
    domains: list[str] | None = None
    description: str | None = None


def read_settings(
    folder: Path, header: dict[str, Any], edition: Edition | None, card_first: bool
) -> FolderSettings:
    """Return the settings that the header of a folder's card and its manifest declare.

    Args:
        folder: The folder.
        header: Header of the card.
        edition: The edition, if the folder has a manifest.
        card_first: Whether the card's settings replace the manifest's; otherwise the two must agree.

    Raises:
        FolderError: A setting is malformed, or card and manifest contradict each other.
    """
    declared = header.get("medteb") or {}
    if not isinstance(declared, dict) or set(declared) - set(_SETTING_KEYS):
        raise FolderError(
            folder, [f"README.md: 'medteb' must be a mapping with keys among {', '.join(_SETTING_KEYS)}"]
        )
    source = "README.md"
    if edition is not None:
        # The manifest pins everything that changes scores, so the card may not say otherwise.
        source = MANIFEST_NAME
        pinned = {key: edition.extra[key] for key in _SETTING_KEYS if key in edition.extra}
        for key in () if card_first else PINNED_SETTINGS:
            if key in declared and declared[key] != pinned.get(key):
                message = (
                    f"README.md: {key} is {declared[key]!r}, but {MANIFEST_NAME} says {pinned.get(key)!r}"
                )
                raise FolderError(folder, [message])
        declared = {**pinned, **declared} if card_first else {**declared, **pinned}
    values = {key: declared[key] for key in _SETTING_KEYS if declared.get(key) is not None}
    values["hub_languages"] = not values.get("languages")
    values["languages"] = _string_list(values.get("languages") or _hub_languages(header.get("language")))
    if "domains" in values:
        values["domains"] = _string_list(values["domains"])
    wrong = [key for key in ("name", "main_score", "description") if not isinstance(values.get(key, ""), str)]
    wrong += [key for key in ("languages", "domains") if values.get(key, []) is None]
    if not _is_prompt(values.get("prompt", "")):
        wrong.append("prompt")
    if "type" in values and values["type"] not in get_args(TaskType):
        raise FolderError(
            folder, [f"{source}: type {values['type']!r} is not one of {', '.join(get_args(TaskType))}"]
        )
    if wrong:
        raise FolderError(folder, [f"{source}: {key} has the wrong type: {declared[key]!r}" for key in wrong])
    return FolderSettings(**values)


def _hub_languages(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    return ["no" if one is False else str(one) for one in values]  # YAML 1.1 reads Norwegian `no` as false


def _string_list(value: Any) -> list[str] | None:
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list) and all(isinstance(item, str) for item in values):
        return values
    return None


def _is_prompt(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) <= {"query", "document"} and all(isinstance(text, str) for text in value.values())
    return isinstance(value, str)
