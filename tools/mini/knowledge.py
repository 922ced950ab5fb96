"""The knowledge tables: typed records, loading and validation."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Phrases = tuple[str, ...]


class KnowledgeError(ValueError):
    """A knowledge table violates its schema; the message names file, row and field."""


@dataclass(frozen=True)
class Condition:
    """A disease or condition; it refers to rows of other tables by their ``name``."""

    name: str
    aliases: Phrases
    lay: Phrases
    department: str
    groups: Phrases
    symptoms: Phrases
    causes: Phrases
    exams: Phrases
    drugs: Phrases
    treatment: Phrases
    diet_good: Phrases
    diet_avoid: Phrases
    care: Phrases
    prognosis: Phrases
    spread: Phrases
    complications: Phrases
    special: dict[str, str]


@dataclass(frozen=True)
class Drug:
    """A drug under its generic name."""

    name: str
    brand: Phrases
    colloquial: Phrases
    kind: str
    form: str
    indications: Phrases
    uses: Phrases
    usage: Phrases
    side_effects: Phrases
    contraindications: Phrases
    interactions: Phrases
    missed: str
    storage: str
    special: dict[str, str]


@dataclass(frozen=True)
class Symptom:
    """A symptom under its clinical name."""

    name: str
    lay: Phrases
    body: str
    department: str
    reasons: Phrases
    handling: Phrases
    alarm: Phrases


@dataclass(frozen=True)
class Exam:
    """An examination or laboratory test."""

    name: str
    lay: Phrases
    kind: str
    purpose: Phrases
    preparation: Phrases
    high: Phrases
    low: Phrases
    process: Phrases


@dataclass(frozen=True)
class Department:
    """A hospital department."""

    name: str
    lay: Phrases


@dataclass(frozen=True)
class PatientGroup:
    """A patient group; ``child`` is true below 18 years."""

    name: str
    lay: Phrases
    child: bool


@dataclass(frozen=True)
class Knowledge:
    """All tables, each sorted by name."""

    conditions: tuple[Condition, ...]
    drugs: tuple[Drug, ...]
    symptoms: tuple[Symptom, ...]
    exams: tuple[Exam, ...]
    departments: tuple[Department, ...]
    groups: tuple[PatientGroup, ...]


Record = TypeVar("Record", Condition, Drug, Symptom, Exam, Department, PatientGroup)


def _value(raw: Any, kind: str, where: str) -> Any:
    """Check one JSON value against the annotation ``kind`` of its field."""
    if kind == "bool" and isinstance(raw, bool):
        return raw
    if kind == "str" and isinstance(raw, str) and raw:
        return raw
    if kind == "Phrases" and isinstance(raw, list) and all(isinstance(item, str) and item for item in raw):
        return tuple(raw)
    if kind == "dict[str, str]" and isinstance(raw, dict) and all(raw.values()):
        return {str(key): str(value) for key, value in raw.items()}
    raise KnowledgeError(f"{where}: expected {kind}, got {raw!r}. Fix the row in the table.")


def _read(table: str, record: type[Record]) -> tuple[Record, ...]:
    """Read one table.

    Raises:
        KnowledgeError: A field is unknown, missing or of the wrong type, or names are not unique and sorted.
    """
    text = files(__package__).joinpath("knowledge", f"{table}.jsonl").read_text("utf-8")
    kinds = {field.name: str(field.type) for field in fields(record)}
    rows: list[Record] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"knowledge/{table}.jsonl line {number}"
        raw = json.loads(line)
        if set(raw) != set(kinds):
            raise KnowledgeError(f"{where}: expected the fields {sorted(kinds)}, got {sorted(raw)}.")
        rows.append(record(**{key: _value(raw[key], kind, f"{where} {key}") for key, kind in kinds.items()}))
    names = [row.name for row in rows]
    if names != sorted(set(names)):
        raise KnowledgeError(f"knowledge/{table}.jsonl: names must be unique and sorted.")
    return tuple(rows)


@lru_cache(maxsize=1)
def load_knowledge() -> Knowledge:
    """Load and check the packaged tables.

    Raises:
        KnowledgeError: A table violates its schema or refers to a name that no table defines.
    """
    knowledge = Knowledge(
        conditions=_read("conditions", Condition),
        drugs=_read("drugs", Drug),
        symptoms=_read("symptoms", Symptom),
        exams=_read("exams", Exam),
        departments=_read("departments", Department),
        groups=_read("groups", PatientGroup),
    )
    problems = list(problems_of(knowledge))
    if problems:
        raise KnowledgeError(f"{len(problems)} problems in the knowledge tables, first: {problems[0]}")
    return knowledge


def problems_of(kb: Knowledge) -> Iterator[str]:
    """Yield every dangling reference, and every lay term that is not unique or contains its clinical name."""
    known = {
        "conditions": {c.name for c in kb.conditions},
        "symptoms": {s.name for s in kb.symptoms},
        "exams": {e.name for e in kb.exams},
        "drugs": {d.name for d in kb.drugs},
        "departments": {d.name for d in kb.departments},
        "groups": {g.name for g in kb.groups},
    }

    def missing(owner: str, table: str, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            if name not in known[table]:
                yield f"{owner} refers to {name!r}, which is not in {table}"

    for c in kb.conditions:
        yield from missing(c.name, "symptoms", c.symptoms)
        yield from missing(c.name, "exams", c.exams)
        yield from missing(c.name, "drugs", c.drugs)
        yield from missing(c.name, "departments", [c.department])
        yield from missing(c.name, "groups", [*c.groups, *c.special])
    for d in kb.drugs:
        for name in d.indications:
            if name not in known["conditions"] | known["symptoms"]:
                yield f"{d.name} refers to {name!r}, which is not a condition or symptom"
        yield from missing(d.name, "groups", d.special)
    for s in kb.symptoms:
        yield from missing(s.name, "departments", [s.department])
    yield from _lay_problems(kb)


def _lay_problems(kb: Knowledge) -> Iterator[str]:
    """Yield lay terms that several entities share, or that contain a name of their entity."""
    owner: dict[str, str] = {}
    rows: list[tuple[str, Phrases, Phrases]] = []
    rows += [(c.name, c.aliases, c.lay) for c in kb.conditions]
    rows += [(d.name, d.brand, d.colloquial) for d in kb.drugs]
    rows += [(s.name, (), s.lay) for s in kb.symptoms]
    rows += [(e.name, (), e.lay) for e in kb.exams]
    for name, aliases, _ in rows:
        for surface in (name, *aliases):
            if owner.setdefault(surface, name) != name:
                yield f"{surface!r} names both {owner[surface]} and {name}"
    for name, aliases, lay in rows:
        for term in lay:
            if owner.get(term, name) != name or term in (name, *aliases):
                yield f"lay term {term!r} belongs to both {owner[term]} and {name}"
            owner[term] = name
            if any(clinical in term for clinical in (name, *aliases)):
                yield f"lay term {term!r} contains a name of {name}"
