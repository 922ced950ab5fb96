"""Checks of a rewrite; the LLM's own claims are not trusted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mar_st.text.texts import normalise
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.sts.select import bounds, says_little
from medteb_mteb.curation.texts.terms import fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.sts.select import SwappedQuery
    from medteb_mteb.curation.texts.terms import Terms

#: Rewrites of each query: one question that asks the same, and a hard and an easy one that do not.
REWRITE_KINDS = ("positive", "negative-1", "negative-2")
POSITIVE = REWRITE_KINDS[0]
#: Marks of a question without a question mark. Words that also occur in statements are left out where the
#: statement is the likelier reading: 没什么, 不怎么.
_ASKING = re.compile(
    r"[吗呢]|(?<![没无])什么|(?<![没不])怎么|怎样|如何|为何|哪|谁|几[天次个周月年岁点号]|多[少久大长高远快]|"
    r"是否|能否|可否|有无|有没有|(.)[不没]\1|(?<!不)要不要|什么时候|何时|啥|咋"
)


def check(candidate: SwappedQuery, rewrites: Mapping[str, str], terms: Terms) -> dict[str, str]:
    """Return the reasons for which rewrites of a query are dropped.

    Args:
        candidate: The query with its term and synonym.
        rewrites: Text by kind (`positive`, `negative-1`, `negative-2`).
        terms: Terms of the whole dictionary; one inside a longer one does not count as used.

    Returns:
        Reason by kind; valid kinds are missing. In the order of the checks:
        `instruction`: it looks as if it wanted to instruct a model.
        `no-question`: it is not one complete question on one line.
        `term-missing`: it does not use the term that it has to.
        `other-term`: it uses the term that it must not.
        `length`: the positive is longer or shorter than allowed.
        `unchanged`: it is the query, or a negative is the query but for the term.
        `contradiction`: a negative is the positive but for the term; both are dropped.
    """
    reasons = {kind: _alone(kind, candidate, rewrites[kind], terms) for kind in REWRITE_KINDS}
    shapes = {kind: _shape(rewrites[kind], candidate, terms) for kind in REWRITE_KINDS}
    query_shape = _shape(candidate.query.full, candidate, terms)
    for kind in REWRITE_KINDS:
        same = normalise(rewrites[kind]) == normalise(candidate.query.full)
        if not reasons[kind] and (same or (kind != POSITIVE and shapes[kind] == query_shape)):
            reasons[kind] = "unchanged"
    if not reasons[POSITIVE]:
        # The same question is both positive and negative, and it is unknown which is wrong.
        for kind in (k for k in REWRITE_KINDS[1:] if not reasons[k] and shapes[k] == shapes[POSITIVE]):
            reasons[kind] = reasons[POSITIVE] = "contradiction"
    return {kind: reason for kind, reason in reasons.items() if reason}


def _alone(kind: str, candidate: SwappedQuery, text: str, terms: Terms) -> str:
    if suspicious(text):
        return "instruction"
    origin, replace = fold(candidate.entry.origin), fold(candidate.entry.replace)
    wanted, other = (origin, replace) if kind == REWRITE_KINDS[2] else (replace, origin)
    used = {place.term for place in terms.find(text)}
    if not is_question(text) or says_little(text, wanted):
        return "no-question"
    if wanted not in used:
        return "term-missing"
    if other in used:
        return "other-term"
    low, high = bounds(candidate.query.full)
    return "length" if kind == POSITIVE and not low <= len(text) <= high else ""


def _shape(text: str, candidate: SwappedQuery, terms: Terms) -> tuple[str, ...]:
    """Return the normalised parts of a text around the term or its synonym."""
    pair = candidate.entry.pair
    parts, end = [], 0
    for place in terms.find(text):
        if place.term in pair:
            parts.append(normalise(text[end : place.start]))
            end = place.end
    return (*parts, normalise(text[end:]))


def is_question(text: str) -> bool:
    """Return True if a Chinese text is one line that asks something."""
    if "\n" in text or "\r" in text:
        return False
    return text.rstrip('"”』」）) ')[-1:] in ("?", "？") or _ASKING.search(text) is not None
