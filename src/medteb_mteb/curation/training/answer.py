"""Reading the two lists of an answer.

An answer with a document that was not asked for, or with one in both lists, is rejected as a whole. Documents
that it leaves out are only missing.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.llm import Rejected, json_object
from medteb_mteb.curation.training.prompt import NEGATIVE_CLASS, POSITIVE_CLASS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Lists", "read_lists"]


@dataclass(frozen=True, slots=True)
class Lists:
    """An answer's lists of the documents of a prompt, by their numbers from 0.

    Attributes:
        positive: Documents that answer the query, ascending.
        negative: Documents that do not, ascending.
        missing: Documents in neither list, ascending.
    """

    positive: tuple[int, ...]
    negative: tuple[int, ...]
    missing: tuple[int, ...] = ()


def read_lists(content: str, ids: Sequence[str], control: int | None = None) -> Lists:
    """Return lists of an answer, without the control document. An id that is repeated in a list counts once.

    Args:
        content: Answer of the LLM.
        ids: Id of each document, in the order of the documents.
        control: Number of the document that answers nothing, if there is one.

    Raises:
        Rejected: `no-json`; `missing-key`: a list is missing; `no-list`: a value is not a list of texts;
            `invented`: an id that was not given; `both`: an id in both lists; `nothing`: every document is
            missing; `control`: the control document is in the positive list.
    """
    answer = json_object(content)
    positive, negative = (_numbers(answer, key, ids) for key in (POSITIVE_CLASS, NEGATIVE_CLASS))
    if positive & negative:
        raise Rejected("both")
    if control in positive:
        raise Rejected("control")
    if not (positive | negative) - {control}:
        raise Rejected("nothing")
    missing = set(range(len(ids))) - positive - negative
    sides = (tuple(sorted(side - {control})) for side in (positive, negative, missing))
    return Lists(*sides)


def _numbers(answer: Mapping[str, Any], key: str, ids: Sequence[str]) -> set[int]:
    if key not in answer:
        raise Rejected("missing-key")
    listed = answer[key]
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise Rejected("no-list")
    known = {name: number for number, name in enumerate(ids)}
    # Ids come with blanks, in capitals or in full width, and mean the same.
    names = [unicodedata.normalize("NFKC", name).strip().lower() for name in listed]
    if any(name not in known for name in names):
        raise Rejected("invented")
    return {known[name] for name in names}
