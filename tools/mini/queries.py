"""Queries as patients type them: lay words, omissions, typos, chatty beginnings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.mini.cells import Cell, seeded
from tools.mini.wording import query_wording, wording_of

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from tools.mini.cells import Entity, World

_OMISSIBLE_WORDS = ("的", "了", "吗", "要", "有", "会", "是", "该")
_A_NOT_A = re.compile("(.)[不没]\\1")  # 要不要, 是不是, 有没有: dropping one half would reverse the question
_MIN_CLAUSE_CHARS = 5


@dataclass(frozen=True)
class Query:
    """A query, the cell it asks for and how it was made.

    Attributes:
        text: Text as typed by the patient.
        cell: Cell that the query asks for.
        term: Surface form of the entity before any typo.
        term_kind: ``name``, ``alias`` or ``lay``.
        pattern: ``kind.intent.index`` of the query pattern.
    """

    text: str
    cell: Cell
    term: str
    term_kind: str
    pattern: str

    @property
    def pair(self) -> tuple[str, str]:
        """Return (term, pattern), which train and test splits must not share."""
        return self.term, self.pattern


def surfaces(entity: Entity) -> list[tuple[str, str]]:
    """Return (term, term kind) for every way to name an entity."""
    named = [(entity.name, "name")]
    named += [(term, "alias") for term in entity.aliases]
    return named + [(term, "lay") for term in entity.lay]


def fit(template: str, entity: Entity) -> str:
    """Return a template with the verb "use" instead of "eat" for drugs that are not swallowed."""
    if not entity.external:
        return template
    return (
        template.replace("服用", "使用").replace("漏服", "漏用").replace("补服", "补用").replace("吃", "用")
    )


def usable_patterns(entity: Entity, intent: str, term: str, kind: str, indices: Iterable[int]) -> list[int]:
    """Return the pattern indices that suit a term: clause-like lay words of conditions must come first."""
    ask = wording_of(entity, intent).ask
    clause = entity.kind == "condition" and kind == "lay" and len(term) >= _MIN_CLAUSE_CHARS
    return [index for index in indices if not clause or ask[index].startswith(("{t}", "{g}{t}"))]


def build_query(world: World, cell: Cell, term: str, kind: str, index: int, *seed: object) -> Query:
    """Write a query; equal arguments give equal text. Every query names its entity in some form."""
    rng = seeded("query", *seed, cell, term, index)
    entity = world.entities[cell.entity]
    wording = query_wording()
    pattern = fit(wording_of(entity, cell.intent).ask[index], entity)
    slot = term
    if rng.random() < 0.07:
        slot = _typo(slot, rng)
    if (
        kind == "lay"
        and len(term) >= _MIN_CLAUSE_CHARS
        and pattern.startswith(("{t}", "{g}{t}"))
        and rng.random() < 0.5
    ):
        slot += rng.choice(wording.seps if entity.kind in ("condition", "symptom") else wording.seps[:2])
    question = pattern
    if rng.random() < 0.15:
        question = _omit(question, rng)
    if rng.random() < 0.07:
        question = _typo(question, rng)
    group = rng.choice(world.groups[cell.group].lay) if cell.group else ""
    text = question.format(t=slot, g=group).replace("的的", "的")
    if group and "{g}" not in pattern:
        text = group + rng.choice(("", "", "，", " ")) + text
    if rng.random() < 0.25:
        text = rng.choice(wording.leads) + text
    if rng.random() < 0.5:
        text += rng.choice(wording.tails)
    return Query(text, cell, term, kind, f"{entity.kind}.{cell.intent}.{index}")


def _typo(text: str, rng: random.Random) -> str:
    """Replace a character by one of similar sound or shape, unless the text is too short for it."""
    typos = query_wording().typos
    places = [place for place, char in enumerate(text) if char in typos]
    if len(text) < 3 or not places:
        return text
    place = rng.choice(places)
    return text[:place] + typos[text[place]] + text[place + 1 :]


def _omit(pattern: str, rng: random.Random) -> str:
    """Drop a function word, as in hurried typing."""
    fixed = {match[1] for match in _A_NOT_A.finditer(pattern)}
    present = [word for word in _OMISSIBLE_WORDS if word in pattern and word not in fixed]
    return pattern.replace(rng.choice(present), "", 1) if present else pattern
