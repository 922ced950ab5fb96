"""Medical exam questions as tasks of English MedTEB: pairs of MedMCQA and MedQA, questions of MedQuAD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.raw import in_one_line
from medteb_mteb.curation.relatives.streams import parse_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = ["medmcqa", "medmcqa_pairs", "medqa", "medqa_pairs"]

_LETTERS = "abcd"
MEDMCQA_SOURCE = "MedMCQA's development split as JSON lines (MIRAGE: rawdata/medmcqa)"
MEDQA_SOURCE = "MedQA-US's test split (MIRAGE: rawdata/medqa)"


def medmcqa(raw: Raw, name: str = "dev.json") -> Iterator[dict[str, Any]]:
    """Yield MedMCQA's questions: `question`, `options` (4), `answer` (0 to 3), `explanation` (may be empty).

    Args:
        raw: The raw files.
        name: File name of a split.

    Raises:
        BuildError: The file is missing or malformed.
    """
    path = raw.one(name, MEDMCQA_SOURCE)
    for row in parse_jsonl(path):
        options = [in_one_line(_text(row.get(f"op{letter}"))) for letter in _LETTERS]
        question, answer = in_one_line(_text(row.get("question"))), row.get("cop")
        if not question or not all(options) or type(answer) is not int or not 1 <= answer <= 4:
            raise BuildError(f"{path}: {row.get('id')} has no question, four options and cop from 1 to 4.")
        explanation = in_one_line(_text(row.get("exp")))
        yield {"question": question, "options": options, "answer": answer - 1, "explanation": explanation}


def medqa(raw: Raw, name: str = "*test.jsonl") -> Iterator[dict[str, Any]]:
    """Yield the questions of MedQA: `question`, `options`, `answer` (index).

    Args:
        raw: The raw files.
        name: File name of a split; may contain `*`.

    Raises:
        BuildError: The file is missing or malformed.
    """
    path = raw.one(name, MEDQA_SOURCE)
    for number, row in enumerate(parse_jsonl(path), start=1):
        given, letter = row.get("options"), row.get("answer_idx")
        question = in_one_line(_text(row.get("question")))
        if not (question and isinstance(given, dict) and isinstance(letter, str) and letter in given):
            raise BuildError(f"{path}:{number}: expected question, options and answer_idx.")
        options = {key: in_one_line(_text(text)) for key, text in sorted(given.items())}
        if not all(options.values()):
            raise BuildError(f"{path}:{number}: an option is empty.")
        yield {"question": question, "options": list(options.values()), "answer": list(options).index(letter)}


def medmcqa_pairs(raw: Raw) -> list[dict[str, Any]]:
    """Return pairs of question and option, with label 1 for the right option.

    Raises:
        BuildError: The file is missing or malformed.
    """
    return [pair for question in medmcqa(raw) for pair in _pairs(question)]


def medqa_pairs(raw: Raw) -> list[dict[str, Any]]:
    """Return pairs of question and option, with label 1 for the right option.

    Raises:
        BuildError: The file is missing or malformed.
    """
    return [pair for question in medqa(raw) for pair in _pairs(question)]


def _pairs(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for place, option in enumerate(question["options"]):
        yield {
            "sentence1": question["question"],
            "sentence2": option,
            "label": int(place == question["answer"]),
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
