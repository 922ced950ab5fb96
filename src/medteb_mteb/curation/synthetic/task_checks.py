"""Checks of task sentences and of examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.text.normalisation import normalise
from medteb_mteb.curation.judge.injection import suspicious
from medteb_mteb.curation.synthetic.checks import SeenTexts, copied, text_problem
from medteb_mteb.curation.synthetic.grid import length_of
from medteb_mteb.curation.synthetic.languages import size, written_in
from medteb_mteb.curation.synthetic.task_prompts import EXAMPLE_TASKS
from medteb_mteb.curation.texts.near_duplicates import jaccard, shingles

if TYPE_CHECKING:
    from medteb_mteb.curation.synthetic.answers import Example
    from medteb_mteb.curation.synthetic.grid import Constraints
    from medteb_mteb.curation.synthetic.languages import Language

__all__ = ["ExampleCheck", "TaskCheck"]

#: Minimum and maximum length of a task sentence.
_TASK_LENGTHS: dict[Language, tuple[int, int]] = {"zh": (8, 100), "en": (5, 60)}
#: Factors by which a length may differ from the requested one: LLMs count badly and write shorter documents
#: than requested. A larger difference means that the request was ignored.
_QUERY_SLACK = 2.5
_DOCUMENT_SLACK = 3.0
#: Minimum Jaccard similarity of character 3-grams at which two documents count as the same.
_SAME_DOCUMENT_SIMILARITY = 0.8


class TaskCheck:
    """Checks task sentences, one after another; later ones are compared with those that passed.

    Args:
        language: Language of the tasks.
    """

    def __init__(self, language: Language) -> None:
        self._language = language
        self._seen = SeenTexts()
        for example in EXAMPLE_TASKS[language]:
            self._seen.add(example)

    def __call__(self, task: str) -> tuple[str, str]:
        """Return the reason to drop a task, and a detail; two empty strings if it passes."""
        reason = text_problem(task, self._language)
        least, most = _TASK_LENGTHS[self._language]
        length = size(task, self._language)
        if not reason and not least <= length <= most:
            reason = "too-short" if length < least else "too-long"
        if reason:
            return reason, ""
        if near := self._seen.near(task):
            return "near-duplicate", near
        self._seen.add(task)
        return "", ""


class ExampleCheck:
    """Checks the examples of one task, one after another; a later query must not repeat one that passed.

    Args:
        task: The task sentence.
        language: Language of the examples.
    """

    def __init__(self, task: str, language: Language) -> None:
        self._language = language
        self._task = normalise(task)
        self._seen = SeenTexts()

    def __call__(self, example: Example, constraints: Constraints) -> tuple[str, str]:
        """Return the reason to drop an example, and a detail; two empty strings if it passes."""
        reason = (
            self._query_problem(example.query, constraints)
            or self._document_problem("positive", example.positive, constraints)
            or self._document_problem("negative", example.negative, constraints)
            or self._together(example)
        )
        if reason:
            return reason, ""
        if near := self._seen.near(example.query):
            return "near-identical", near
        self._seen.add(example.query)
        return "", ""

    def _query_problem(self, query: str, constraints: Constraints) -> str:
        problem = text_problem(query, self._language)
        if problem:
            return problem
        wanted = length_of(constraints.query_length, self._language)
        length = size(query, self._language)
        if not wanted.least / _QUERY_SLACK <= length <= wanted.most * _QUERY_SLACK:
            return "query-length"
        return "query-is-task" if normalise(query) == self._task else ""

    def _document_problem(self, kind: str, document: str, constraints: Constraints) -> str:
        if not written_in(document, self._language):
            return "language"
        if suspicious(document):
            return "instruction"
        wanted = length_of(constraints.num_words, self._language)
        length = size(document, self._language)
        fits = wanted.least / _DOCUMENT_SLACK <= length <= wanted.most * _DOCUMENT_SLACK
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
