"""The prompt for rewrites: the published schema (MAR paper, synonym STS) in our own words."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING

from mar_st.text.values import as_text
from medteb_mteb.curation.judge.injection import defused, delimiter
from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text, version_of
from medteb_mteb.curation.llm.tolerant import Rejected, json_object
from medteb_mteb.curation.step import tokens_of

if TYPE_CHECKING:
    from medteb_mteb.curation.sts.select import SwappedQuery

#: Rewrites of each query: one question that asks the same, and a hard and an easy one that do not.
REWRITE_KINDS = ("positive", "negative-1", "negative-2")
POSITIVE = REWRITE_KINDS[0]
#: Share of the query's length by which that of the positive may differ, as published.
TOLERANCE = 0.3

SYSTEM = prompt_text(__file__, "system").strip()
TEMPLATE = prompt_text(__file__, "user")

SCHEMA = object_schema({kind: {"type": "string"} for kind in REWRITE_KINDS})


def prompt_version() -> str:
    """Return the digest (16 hex digits) of the prompt without its input."""
    return version_of(SYSTEM, TEMPLATE, json.dumps(SCHEMA, sort_keys=True))


def bounds(query: str) -> tuple[int, int]:
    """Return the fewest and most characters that `positive` may have."""
    length = len(query.strip())
    # The small constant compensates for rounding errors such as 0.3 x 10 = 2.9999...
    allowed = math.floor(TOLERANCE * length + 1e-9)
    return max(1, length - allowed), length + allowed


def render(candidate: SwappedQuery) -> Prompt:
    """Render the prompt for a query; its key is the query's id."""
    query = candidate.query.full
    fields = {
        "origin": candidate.entry.origin,
        "replace": candidate.entry.replace,
        "query_pairs": {"origin": defused(query), "replace": defused(candidate.swapped)},
    }
    content = json.dumps(fields, ensure_ascii=False, indent=1)
    low, high = bounds(query)
    user = TEMPLATE.format(
        word=delimiter(hashlib.sha256(content.encode()).digest(), (content,)),
        content=content,
        low=low,
        high=high,
    )
    return Prompt(candidate.query.id, SYSTEM, user, SCHEMA, 30 + 3 * tokens_of(query), texts=(query,))


def read_rewrites(prompt: Prompt, content: str) -> dict[str, str]:
    """Return the rewrites of an answer by kind; their quality is not checked here.

    Raises:
        Rejected: `no-json`, `missing-key`, `extra-key` or `no-text`.
    """
    del prompt
    answer = json_object(content)
    if not set(REWRITE_KINDS) <= set(answer):
        raise Rejected("missing-key")
    if len(answer) > len(REWRITE_KINDS):
        raise Rejected("extra-key")
    texts = {kind: as_text(answer[kind]) for kind in REWRITE_KINDS}
    if not all(texts.values()):
        raise Rejected("no-text")
    return {kind: text.strip() for kind, text in texts.items() if text}
