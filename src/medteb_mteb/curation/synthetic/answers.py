"""Parses answers: a list of strings, or a query with its two documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.text.values import writable
from medteb_mteb.curation.llm.tolerant import Rejected, json_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from medteb_mteb.curation.llm.client import Prompt

#: Keys of an example, as published by BMRetriever: query, a document that answers it, one that does not.
PAIR_KEYS = ("user_query", "positive_document", "hard_negative_document")

#: Marks of a list item inside a string: "1. ", "2、", "- ". The point in "2.5 mg" is not such a mark.
_NUMBER = re.compile(r"^\s*(?:[-*•]\s+|[(（]?\d{1,2}(?:[、)）]|[.．:：](?!\d))\s*)")
_QUOTES = (("“", "”"), ("「", "」"), ('"', '"'), ("'", "'"))


class Example(NamedTuple):
    """A synthetic query with a document that answers it and a hard negative."""

    query: str
    positive: str
    negative: str


def tidied(line: str) -> str:
    """Return a line without the numbering and quotation marks added by an LLM, with single blanks."""
    text = " ".join(_NUMBER.sub("", line).split())
    for left, right in _QUOTES:
        inner = text[1:-1]
        if len(text) > 2 and text[0] == left and text[-1] == right and left not in inner:
            return inner.strip()
    return text


def strings_of(key: str) -> Callable[[Prompt, str], tuple[str, ...]]:
    """Return a reader of answers that are a JSON object with a list of strings.

    The reader rejects an answer as `no-json`, `missing-key`, or `not-strings`. An empty list is valid.

    Args:
        key: Key of the list.
    """

    def read(prompt: Prompt, content: str) -> tuple[str, ...]:
        del prompt
        (strings,) = _values(json_object(content), (key,))
        if not isinstance(strings, list) or not all(isinstance(line, str) for line in strings):
            raise Rejected("not-strings")
        return tuple(tidied(writable(line)) for line in strings)

    return read


def read_example(prompt: Prompt, content: str) -> Example:
    """Return the example of an answer.

    Raises:
        Rejected: `no-json`, `missing-key`, `not-strings`, or `empty`.
    """
    del prompt
    values = _values(json_object(content), PAIR_KEYS)
    if not all(isinstance(value, str) for value in values):
        raise Rejected("not-strings")
    query, positive, negative = (writable(value).strip() for value in values)
    if not (query and positive and negative):
        raise Rejected("empty")
    return Example(tidied(query), positive, negative)


def _values(answer: dict[str, Any], keys: Sequence[str]) -> list[Any]:
    if any(key not in answer for key in keys):
        raise Rejected("missing-key")
    return [answer[key] for key in keys]
