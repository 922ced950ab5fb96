"""Synonym STS: whether two questions ask the same thing, independently of the words for the subject.

The three kinds of pairs follow the published construction: ``positive`` replaces the term by a synonym and
keeps the intent, ``negative-1`` replaces the term and changes the intent, ``negative-2`` keeps the term and
changes the intent. About half of the positives are reworded and many negatives stay close to the wording of
the first question, so character overlap says little about the label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.mini.cells import SPECIAL_INTENT, seeded
from tools.mini.negatives import bigram_cosine
from tools.mini.queries import fit, surfaces
from tools.mini.wording import wording_of

if TYPE_CHECKING:
    import random

    from tools.mini.cells import Entity, World

N_TEST, N_TRAIN = 1_000, 12_000
REWRITE_KINDS = ("positive", "negative-1", "negative-2")
LENGTH_TOLERANCE = 0.3

_KIND_SHARE = {"condition": 0.42, "drug": 0.28, "symptom": 0.2, "exam": 0.1}
# Probability that a positive keeps the wording, and that a negative uses one of the closest other wordings.
_SAME_WORDING_SHARE = 0.45
_CLOSE_NEGATIVE_SHARE = {"negative-1": 0.75, "negative-2": 0.1}
_PREFIXES = ("", "", "", "请问", "请问医生，", "想了解一下，", "麻烦解答，", "咨询一下，")
_MIN_QUOTED_CHARS = 5
# Pairs of intents that are too similar for a negative.
_SIMILAR_INTENTS = (
    {"treatment", "drugs"}, {"prognosis", "complications"}, {"care", "diet_good"}, {"care", "diet_avoid"},
    {"care", "treatment"}, {"prognosis", "treatment"}, {"handling", "alarm"}, {"alarm", "department"},
    {"purpose", "high"}, {"indication", "contraindications"},
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two complete questions and whether they ask the same thing."""

    sentence1: str
    sentence2: str
    score: float
    kind: str
    used: tuple[tuple[str, str], ...]


class _Sentence:
    """A question under construction: term, template id and text."""

    def __init__(self, entity: Entity, term: str, intent: str, index: int, prefix: str) -> None:
        template = fit(wording_of(entity, intent).sts[index], entity)
        slot = f"“{term}”" if term in entity.lay and len(term) >= _MIN_QUOTED_CHARS else term
        self.pair = (term, f"sts.{entity.kind}.{intent}.{index}")
        self.text = prefix + template.format(t=slot)


def build_sts(world: World, used_texts: set[str], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return test and train pairs, which share no sentence and no (term, template) pair.

    Args:
        world: All entities.
        used_texts: Texts that no sentence may repeat (the test queries).
        seed: Seed of the edition.
    """
    sentences = set(used_texts)
    pairs: set[tuple[str, str]] = set()
    test = _build(world, "test", N_TEST, sentences, pairs, seed)
    train = _build(
        world, "train", N_TRAIN, {s for p in test for s in (p.sentence1, p.sentence2)} | used_texts,
        {used for pair in test for used in pair.used}, seed,
    )  # fmt: skip
    return test, train


def _build(
    world: World, split: str, count: int, sentences: set[str], pairs: set[tuple[str, str]], seed: int
) -> list[Pair]:
    """Return distinct pairs without the given ``sentences`` and ``pairs``.

    The test split has one of the three rewrites of a question, the train split all three.
    """
    by_kind: dict[str, list[Entity]] = {}
    for entity in world.entities.values():
        if len(surfaces(entity)) > 1:
            by_kind.setdefault(entity.kind, []).append(entity)
    accepted: dict[tuple[str, str], Pair] = {}
    firsts: set[str] = set()
    attempt = 0
    while len(accepted) < count:
        attempt += 1
        rng = seeded("sts", seed, split, attempt)
        entity = rng.choice(by_kind[rng.choices(list(_KIND_SHARE), list(_KIND_SHARE.values()))[0]])
        question = _Question(entity, rng)
        kinds = REWRITE_KINDS if split == "train" else (REWRITE_KINDS[len(accepted) % 3],)
        rewrites = [_pair(question, kind, rng) for kind in kinds]
        new = {(pair.sentence1, pair.sentence2): pair for pair in rewrites if pair is not None}
        if len(new) < len(kinds) or new.keys() & accepted.keys():
            continue
        if split == "train" and question.first.text in firsts:
            continue
        if any({p.sentence1, p.sentence2} & sentences or set(p.used) & pairs for p in new.values()):
            continue
        accepted.update(new)
        firsts.add(question.first.text)
    rows = list(accepted.values())
    seeded("sts-order", seed, split).shuffle(rows)
    return rows


class _Question:
    """The question to rewrite: an entity under one name, an intent, a wording."""

    def __init__(self, entity: Entity, rng: random.Random) -> None:
        self.entity = entity
        self.origin, self.replace = (term for term, _ in rng.sample(surfaces(entity), 2))
        self.intent = rng.choice([i for i, facts in entity.facts.items() if facts and i != SPECIAL_INTENT])
        self.wording = wording_of(entity, self.intent).sts
        self.index = rng.randrange(len(self.wording))
        self.prefix = rng.choice(_PREFIXES)
        self.first = _Sentence(entity, self.origin, self.intent, self.index, self.prefix)


def _pair(question: _Question, kind: str, rng: random.Random) -> Pair | None:
    """Return a rewrite of a question, or None if no wording satisfies the length tolerance."""
    first, index, entity = question.first, question.index, question.entity
    if kind == "positive":
        same = rng.random() < _SAME_WORDING_SHARE
        choices = [index] if same else [i for i in range(len(question.wording)) if i != index]
        prefix = question.prefix if same else rng.choice(_PREFIXES)
        options = [_Sentence(entity, question.replace, question.intent, i, prefix) for i in choices]
        low, high = (len(first.text) * (1 + sign * LENGTH_TOLERANCE) for sign in (-1, 1))
        options = [option for option in options if low <= len(option.text) <= high]
        if not options:
            return None
        second = rng.choice(options)
    else:
        term = question.replace if kind == "negative-1" else question.origin
        second = _changed(entity, term, kind, first, question.intent, question.prefix, rng)
    score = 1.0 if kind == "positive" else 0.0
    return Pair(first.text, second.text, score, kind, (first.pair, second.pair))


def _changed(
    entity: Entity, term: str, kind: str, first: _Sentence, intent: str, prefix: str, rng: random.Random
) -> _Sentence:
    """Return a question with another intent, often with one of the closest wordings."""
    others = [
        (other, index)
        for other, facts in entity.facts.items()
        if facts and other != intent and {intent, other} not in _SIMILAR_INTENTS
        for index in range(len(wording_of(entity, other).sts))
    ]
    if rng.random() >= _CLOSE_NEGATIVE_SHARE[kind]:
        other, index = rng.choice(others)
        return _Sentence(entity, term, other, index, rng.choice(_PREFIXES))
    options = [_Sentence(entity, term, other, index, prefix) for other, index in others]
    options.sort(key=lambda option: (-bigram_cosine(first.text, option.text), option.text))
    return rng.choice(options[:3])
