"""The wording files: how documents express each intent and how queries ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from tools.mini.cells import Entity

HELD_OUT_PATTERNS = 3  # the last patterns of every intent are used in test splits only


@dataclass(frozen=True)
class IntentWording:
    """Alternatives for an intent; the wording files describe the slots."""

    titles: tuple[str, ...]
    heads: tuple[str, ...]
    say: tuple[str, ...]
    talk: tuple[str, ...]
    ask: tuple[str, ...]
    sts: tuple[str, ...]

    @property
    def shared(self) -> range:
        """Return the indices of the query patterns that train and test splits share."""
        return range(len(self.ask) - HELD_OUT_PATTERNS)

    @property
    def held_out(self) -> range:
        """Return the indices of the query patterns used only in the test splits."""
        return range(len(self.ask) - HELD_OUT_PATTERNS, len(self.ask))


@dataclass(frozen=True)
class RegisterWording:
    """Phrases of a register: openings, quoted lay words, middles, closings, and titles without an intent."""

    open: tuple[str, ...]
    word: tuple[str, ...]
    middle: tuple[str, ...]
    close: tuple[str, ...]
    titles: tuple[str, ...]


@dataclass(frozen=True)
class QueryWording:
    """Phrases that patients add to a question, and their typos."""

    leads: tuple[str, ...]
    tails: tuple[str, ...]
    seps: tuple[str, ...]
    typos: dict[str, str]


def _yaml(name: str) -> dict[str, Any]:
    text = files(__package__).joinpath("wording", f"{name}.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def _choices(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


@lru_cache(maxsize=1)
def intent_wording() -> dict[tuple[str, str], IntentWording]:
    """Return the wording by (kind, intent)."""
    return {
        (kind, intent): IntentWording(**{key: _choices(text) for key, text in raw.items()})
        for kind in ("condition", "drug", "symptom", "exam")
        for intent, raw in _yaml(f"{kind}s").items()
    }


def wording_of(entity: Entity, intent: str) -> IntentWording:
    """Return the wording of an intent for an entity; scans have findings instead of high or low values."""
    key = f"{intent}_finding" if entity.findings and intent in ("high", "low") else intent
    return intent_wording()[entity.kind, key]


@lru_cache(maxsize=1)
def register_wording() -> dict[str, RegisterWording]:
    """Return the wording by register."""
    raw = _yaml("registers")
    titles = raw.pop("titles")
    return {
        name: RegisterWording(
            titles=_choices(titles[name]), **{key: _choices(text) for key, text in part.items()}
        )
        for name, part in raw.items()
    }


@lru_cache(maxsize=1)
def query_wording() -> QueryWording:
    """Return the leads, tails, separators and typos of queries."""
    raw = _yaml("queries")
    typos = dict(pair.split(":") for pair in raw["typos"].split())
    return QueryWording(_choices(raw["leads"]), _choices(raw["tails"]), _choices(raw["seps"]), typos)


@lru_cache(maxsize=1)
def card_wording() -> dict[str, Any]:
    """Return the prose of the dataset cards."""
    return _yaml("cards")
