"""The two-list prompt: the published task (MAR paper, Table 23), in our own words.

A query and its candidates go in, two lists of ids come out: those with sentences that answer the query, and
those without, whether they are on its subject or not.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.judge.injection import defused, delimiter
from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text, version_of
from medteb_mteb.curation.llm.tolerant import Rejected, json_object
from medteb_mteb.curation.step import tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Keys of the answer, as published.
POSITIVE_CLASS, NEGATIVE_CLASS = "positive_document", "negative_document"

SYSTEM = prompt_text(__file__, "system").strip()
TEMPLATE = prompt_text(__file__, "user")
DOCUMENT_TEMPLATE = prompt_text(__file__, "document").strip()

#: Tokens of a prompt without its texts, and of the delimiters and the id of a document.
PROMPT_TOKENS = tokens_of(SYSTEM) + tokens_of(TEMPLATE)
DOCUMENT_TOKENS = tokens_of(DOCUMENT_TEMPLATE) + 10
#: Tokens of an answer per document: its id, quoted and with a comma.
TOKENS_PER_ID = 6
#: Tokens of the rest of an answer: its two keys and the brackets.
TOKENS_AROUND = 20


def _ids(count: int) -> tuple[str, ...]:
    """Return the ids of the documents of a prompt, as published: `doc-1`, `doc-2`, ..."""
    return tuple(f"doc-{number}" for number in range(1, count + 1))


def prompt_version() -> str:
    """Return the digest (16 hex digits) of the prompt without its texts, and of the answer's form."""
    return version_of(SYSTEM, TEMPLATE, DOCUMENT_TEMPLATE, json.dumps(_schema(_ids(1)), sort_keys=True))


def _schema(ids: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of an answer: two lists of ids, nothing else."""
    id_list = {"type": "array", "items": {"type": "string", "enum": list(ids)}}
    return object_schema({POSITIVE_CLASS: id_list, NEGATIVE_CLASS: id_list})


def render(key: str, query: str, documents: Sequence[str]) -> Prompt:
    """Return the prompt for a query and some documents; the same texts in the same order give the same words.

    Args:
        key: Key of the prompt.
        query: The query.
        documents: Texts in the order of the prompt.
    """
    shown = (defused(query), *map(defused, documents))
    request = hashlib.sha256("\0".join((query, *documents)).encode("utf-8", "surrogatepass")).digest()
    word = delimiter(request, shown)
    ids = _ids(len(documents))
    user = TEMPLATE.format(
        count=len(documents),
        word=word,
        query=shown[0],
        documents="\n".join(
            DOCUMENT_TEMPLATE.format(word=word, key=name, text=text)
            for name, text in zip(ids, shown[1:], strict=True)
        ),
    )
    return Prompt(
        key, SYSTEM, user, _schema(ids), TOKENS_AROUND + TOKENS_PER_ID * len(ids), texts=(query, *documents)
    )


def read_lists(content: str, count: int, control: int | None = None) -> dict[int, int]:
    """Return 1 or 0 for the documents of a prompt, by number from 0: whether they answer the query.

    Documents in neither list, and the control document, are left out. An id that is repeated in a list counts
    once. An answer with a document that was not asked for, or with one in both lists, is rejected as a whole.

    Args:
        content: Answer of the LLM.
        count: Number of documents of the prompt.
        control: Number of the document that answers nothing, if there is one.

    Raises:
        Rejected: `no-json`; `missing-key`: a list is missing; `no-list`: a value is not a list of texts;
            `invented`: an id that was not given; `both`: an id in both lists; `nothing`: every document is
            missing; `control`: the control document is in the positive list.
    """
    answer = json_object(content)
    positive, negative = (_numbers(answer, key, _ids(count)) for key in (POSITIVE_CLASS, NEGATIVE_CLASS))
    if positive & negative:
        raise Rejected("both")
    if control in positive:
        raise Rejected("control")
    labels = dict.fromkeys(positive, 1) | dict.fromkeys(negative - {control}, 0)
    if not labels:
        raise Rejected("nothing")
    return labels


def _numbers(answer: dict[str, Any], key: str, ids: Sequence[str]) -> frozenset[int]:
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
    return frozenset(known[name] for name in names)
