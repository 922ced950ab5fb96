"""Reads synthetic queries, tasks and examples, and drops copies, repetitions, instructions, wrong lengths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from mar_st.text.texts import normalise
from mar_st.text.values import writable
from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.llm.client import prompt_text
from medteb_mteb.curation.llm.tolerant import Rejected, json_object
from medteb_mteb.curation.synthetic.forms import FORMS, LANGUAGES, form_problem, size, written_in
from medteb_mteb.curation.synthetic.grid import LENGTHS
from medteb_mteb.curation.texts.near_duplicates import jaccard, shingles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.synthetic.forms import Language
    from medteb_mteb.curation.synthetic.grid import Constraints

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


#: Minimum Jaccard similarity of character 2-grams at which two short texts count as nearly the same. In a
#: sentence of 20 characters, another disease gives about .6, and an added or removed particle .9.
NEAR_DUPLICATE_SIMILARITY = 0.75
#: Minimum letters and digits of a copied piece of a document; shorter pieces are names of things. An English
#: word has about five letters.
_MIN_COPY_LENGTH: dict[Language, int] = {"zh": 10, "en": 40}
#: Minimum letters and digits of a sentence; shorter ones are headings or names.
_MIN_SENTENCE_LENGTH: dict[Language, int] = {"zh": 5, "en": 15}

#: Two example tasks in the prompt for tasks: to verify a claim, and to answer frequent questions.
EXAMPLE_TASKS = {one: prompt_text(__file__, f"example-tasks-{one}").splitlines() for one in LANGUAGES}
#: Minimum and maximum length of a task sentence.
_TASK_LENGTHS: dict[Language, tuple[int, int]] = {"zh": (8, 100), "en": (5, 60)}
#: Factors by which a length may differ from the requested one: LLMs count badly and write shorter documents
#: than requested. A larger difference means that the request was ignored.
_QUERY_SLACK = 2.5
_DOCUMENT_SLACK = 3.0
#: Minimum Jaccard similarity of character 3-grams at which two documents count as the same.
_SAME_DOCUMENT_SIMILARITY = 0.8

_SENTENCE_END = re.compile(r"[。！？!?；;\n]|\.\s")

_MENTION_OF_DOCUMENT: dict[Language, re.Pattern[str]] = {
    "zh": re.compile(
        r"本文|该文|此文|文中|文内|文章|上文|下文|前文|原文|全文|本段|该段|本研究|该研究|本病例|该病例|本例|"
        r"(这|那|本|该|此|上述|以上|所给|给定|提供的?)一?[篇份段则个]?"
        r"(文档|文本|文献|段落|材料|资料|回答|答案|论文|报道|内容)|"
        r"(根据|依据|按照)(文档|文献|段落|材料|资料|内容)|作者(认为|指出|提到|建议|是谁)"
    ),
    "en": re.compile(
        r"\b(this|the|that|above|given|provided) "
        r"(document|passage|article|paper|excerpt|abstract|authors?)\b|"
        r"\b(this|the) (text|study)\b(?! of)|\baccording to the (document|passage|text|article|study)\b|"
        r"\bmentioned (above|here)\b",
        re.IGNORECASE,
    ),
}
_BACK_REFERENCE: dict[Language, re.Pattern[str]] = {
    "zh": re.compile(
        r"(该|此|上述|前述)[类种]?(疾?病|症|药|患者|病人|病例|方法|疗法|方案|指标|综合征)|"
        # "该" may mean "should" before a word that is also a verb.
        r"(此|上述|前述)[类种]?(检查|检验|手术|治疗)"
    ),
    "en": re.compile(
        r"\b(this|these|the above|the said) (disease|disorder|condition|syndrome|drug|medication|medicine|"
        r"patients?|treatment|therapy|procedure|test|method|symptoms?)\b",
        re.IGNORECASE,
    ),
}
_PLACEHOLDER = re.compile(
    r"\[(?:" + "|".join(f"{name}|{chinese}" for name, chinese in IDENTIFIER_KINDS.items()) + r")\d*\]"
)
#: Placeholders in the example of a prompt, which an LLM may copy into its answer.
_PLACE = re.compile(r"<第\d+[条个][^<>]*>|<(query|task)[ -]?\d+>|</?document")


def text_problem(text: str, language: Language) -> str:
    """Return the defect of a short text of any kind; empty if there is none."""
    if not normalise(text):
        return "empty"
    if _PLACE.search(text) or _PLACEHOLDER.search(text):
        return "placeholder"
    if not written_in(text, language):
        return "language"
    return "instruction" if suspicious(text) else ""


def copied(text: str, document: str, language: Language) -> bool:
    """Return True if a document contains at least four fifths of a text in one piece.

    Args:
        text: The text.
        document: The document, normalised.
        language: Language of both; determines the minimum length of a copy, since shorter pieces are names.
    """
    plain = normalise(text)
    width = max(_MIN_COPY_LENGTH[language], -(-len(plain) * 4 // 5))
    return any(plain[i : i + width] in document for i in range(len(plain) - width + 1))


class _Check:
    """Checks texts one after another; later ones are compared with those that passed."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._grams: list[tuple[str, frozenset[str]]] = []

    def _outcome(self, reason: str, text: str, repeated: str = "near-identical") -> tuple[str, str]:
        """Return `reason`, if there is one, or `repeated` and the first text that is nearly the same."""
        if reason:
            return reason, ""
        grams = shingles(text, 2)
        for known, others in self._grams:
            if jaccard(grams, others) >= NEAR_DUPLICATE_SIMILARITY:
                return repeated, known
        self._grams.append((text, grams))
        return "", ""


class QueryCheck(_Check):
    """Checks the queries of one document.

    Args:
        document: Full text of the document.
        language: Language of the queries.
    """

    def __init__(self, document: str, language: Language) -> None:
        super().__init__(language)
        self._document = normalise(document)
        self._sentences = {normalise(piece) for piece in _SENTENCE_END.split(document)}

    def __call__(self, query: str, form: str) -> tuple[str, str]:
        """Return the reason to drop a query, and a detail; two empty strings if it passes.

        Args:
            query: The query.
            form: The requested form.
        """
        language = self._language
        reason = text_problem(query, language) or self._length(query, form)
        if not reason and _MENTION_OF_DOCUMENT[language].search(query):
            reason = "about-the-document"
        # A case may name its disease first and then call it "this disease".
        if not reason and form != "case" and _BACK_REFERENCE[language].search(query):
            reason = "refers-back"
        reason = reason or form_problem(query, form, language)
        if not reason and self._copied(query):
            reason = "copied"
        return self._outcome(reason, query)

    def _length(self, query: str, form: str) -> str:
        least, most = FORMS[form].bounds[self._language]
        length = size(query, self._language)
        return "too-short" if length < least else "too-long" if length > most else ""

    def _copied(self, query: str) -> bool:
        plain = normalise(query)
        whole = len(plain) >= _MIN_SENTENCE_LENGTH[self._language] and plain in self._sentences
        return whole or copied(query, self._document, self._language)


class TaskCheck(_Check):
    """Checks task sentences.

    Args:
        language: Language of the tasks.
    """

    def __init__(self, language: Language) -> None:
        super().__init__(language)
        for example in EXAMPLE_TASKS[language]:
            self._outcome("", example)

    def __call__(self, task: str) -> tuple[str, str]:
        """Return the reason to drop a task, and a detail; two empty strings if it passes."""
        reason = text_problem(task, self._language)
        least, most = _TASK_LENGTHS[self._language]
        length = size(task, self._language)
        if not reason and not least <= length <= most:
            reason = "too-short" if length < least else "too-long"
        return self._outcome(reason, task, "near-duplicate")


class ExampleCheck(_Check):
    """Checks the examples of one task; a later query must not repeat one that passed.

    Args:
        task: The task sentence.
        language: Language of the examples.
    """

    def __init__(self, task: str, language: Language) -> None:
        super().__init__(language)
        self._task = normalise(task)

    def __call__(self, example: Example, constraints: Constraints) -> tuple[str, str]:
        """Return the reason to drop an example, and a detail; two empty strings if it passes."""
        reason = (
            self._query_problem(example.query, constraints)
            or self._document_problem("positive", example.positive, constraints)
            or self._document_problem("negative", example.negative, constraints)
            or self._together(example)
        )
        return self._outcome(reason, example.query)

    def _query_problem(self, query: str, constraints: Constraints) -> str:
        problem = text_problem(query, self._language)
        if problem:
            return problem
        least, most = LENGTHS[self._language][constraints.query_length]
        if not least / _QUERY_SLACK <= size(query, self._language) <= most * _QUERY_SLACK:
            return "query-length"
        return "query-is-task" if normalise(query) == self._task else ""

    def _document_problem(self, kind: str, document: str, constraints: Constraints) -> str:
        if not written_in(document, self._language):
            return "language"
        if suspicious(document):
            return "instruction"
        least, most = LENGTHS[self._language][constraints.num_words]
        fits = least / _DOCUMENT_SLACK <= size(document, self._language) <= most * _DOCUMENT_SLACK
        return "" if fits else f"{kind}-length"

    def _together(self, example: Example) -> str:
        query, positive, negative = map(normalise, (example.query, example.positive, example.negative))
        if query in (positive, negative):
            return "query-is-document"
        if (
            positive == negative
            or jaccard(shingles(positive), shingles(negative)) >= _SAME_DOCUMENT_SIMILARITY
        ):
            return "same-documents"
        # A query that occurs in its document only teaches word matching.
        if copied(example.query, positive, self._language) or copied(example.query, negative, self._language):
            return "copied"
        return ""
