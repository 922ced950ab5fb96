"""MedQuAD: its question-answer pairs, and the answers that people graded for the questions of TREC LiveQA.

The source (github.com/abachaa/MedQuAD, CC BY 4.0) has XML files by collection, and a zip with 2,479 grades of
1,935 answers for 103 of the 104 LiveQA questions. The grades are those of the track: 1 incorrect, 2 related,
3 incomplete, 4 excellent. The zip refers to questions by number; their texts are in the track's repository
(github.com/abachaa/LiveQA_MedicalTask_TREC2017).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.raw import (
    Archive,
    clean,
    decode,
    in_one_line,
    parse_csv,
    parse_xml,
    read_bytes,
)
from medteb_mteb.curation.relatives.write import BuiltSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.relatives.raw import Raw

__all__ = [
    "AnswerPair",
    "Grade",
    "build_live_qa",
    "read_grades",
    "read_judged_answers",
    "read_live_questions",
    "read_pairs",
]

LICENCE = "cc-by-4.0"
MEDQUAD_SOURCE = "medquad: the archive or checkout of github.com/abachaa/MedQuAD"
GRADES_ZIP = "QA-TestSet-LiveQA-Med-Qrels-2479-Answers.zip"
QUESTIONS_FILE = "TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml"
PROMPT = "Given a consumer health question, retrieve answers from trusted medical sources"

#: Elements with the text of a query, by form; a later one is used if the earlier ones are empty.
QUERY_ELEMENTS = {
    "original": ("Original-Question",),
    "paraphrase": ("NIST-PARAPHRASE", "NLM-Summary"),
    "summary": ("NLM-Summary",),
}
_JUDGED_ANSWER = re.compile(
    r"Question: (?P<question>.*?)\nURL: (?P<url>\S*)\nAnswer: (?P<answer>.*)\Z", re.DOTALL
)


@dataclass(frozen=True)
class AnswerPair:
    """A question of a page and the page's answer.

    Attributes:
        id: Collection, page and number of the pair.
        question: The question.
        answer: The answer.
    """

    id: str
    question: str
    answer: str


@dataclass(frozen=True)
class Grade:
    """A grade of an answer for a question.

    Attributes:
        question: Number of the LiveQA question.
        answer: Id of the answer.
        grade: 1 incorrect, 2 related, 3 incomplete, 4 excellent.
    """

    question: str
    answer: str
    grade: int


def read_pairs(raw: Raw) -> tuple[list[AnswerPair], Counter[str]]:
    """Return the pairs of all collections that have an answer, each once.

    Returns:
        The pairs in the order of collections, pages and pairs, and the number of pairs left out by reason:
        answers that the source removed for copyright, repeated pairs.

    Raises:
        BuildError: There is no MedQuAD, or a page cannot be read.
    """
    pairs: list[AnswerPair] = []
    left_out: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    ids: set[str] = set()
    for name, data in _medquad(raw).members(r"(^|/)\d+_\w+_QA(_XML)?/[^/]+\.xml$"):
        collection, page = re.sub(r"_XML$", "", name.split("/")[-2]), name.split("/")[-1][:-4]
        for pair in parse_xml(data, name).iter("QAPair"):
            question, answer = in_one_line(pair.findtext("Question")), clean(pair.findtext("Answer"))
            if not question or not answer:
                left_out["pairs without an answer"] += 1
            elif _key(question, answer) in seen:
                left_out["repeated pairs"] += 1
            else:
                seen.add(_key(question, answer))
                key = f"{collection}/{page}-{pair.get('pid') or len(pairs)}"
                if key in ids:
                    raise BuildError(f"{name}: two pairs have the id {key!r}; expected {MEDQUAD_SOURCE}.")
                ids.add(key)
                pairs.append(AnswerPair(key, question, answer))
    if not pairs:
        raise BuildError(f"{raw.folder} holds no MedQuAD answers; expected {MEDQUAD_SOURCE}.")
    return pairs, left_out


def _medquad(raw: Raw) -> Archive:
    archives = [path for pattern in ("MedQuAD*.tar.gz", "MedQuAD*.zip") for path in raw.find(pattern)]
    if len(archives) > 1:
        raise BuildError(
            f"{raw.folder} has several archives of MedQuAD ({archives[0].name}, {archives[1].name})."
        )
    return Archive(archives[0]) if archives else raw.as_archive("MedQuAD")


def read_grades(raw: Raw) -> list[Grade]:
    """Return the grades in file order.

    Raises:
        BuildError: The grades are missing, or a line is malformed.
    """
    name, data = _in_zip(raw, r"qrels_LiveQAMed2017[^/]*\.txt$")
    grades = []
    for number, line in enumerate(decode(data, name).splitlines(), start=1):
        match = re.fullmatch(r"(\d+) ([1-4])-\w+ (\S+)", line.strip())
        if match is None:
            raise BuildError(f"{name}:{number}: expected QUESTION GRADE-NAME ANSWER, got {line[:60]!r}.")
        grades.append(Grade(match[1], match[3], int(match[2])))
    return grades


def read_judged_answers(raw: Raw) -> dict[str, AnswerPair]:
    """Return the graded answers by id, each with the question that it answers in its source.

    Raises:
        BuildError: The answers are missing, or a row is malformed.
    """
    name, data = _in_zip(raw, r"Answers-retrieved-from-MedQuAD\.csv$")
    answers: dict[str, AnswerPair] = {}
    for row in parse_csv(decode(data, name), name, ("AnswerID", "Answer")):
        parts = _JUDGED_ANSWER.match(row["Answer"])
        if parts is None:
            raise BuildError(f"{name}: {row['AnswerID']} is not Question, URL and Answer.")
        question = parts["question"].partition("(Also called:")[0]
        # Every text ends with a parenthesis that is not in its source.
        answer = re.sub(r"\)\s*\Z", "", parts["answer"])
        pair = AnswerPair(row["AnswerID"], in_one_line(question), clean(answer))
        if answers.setdefault(pair.id, pair) != pair:  # an answer has a row for each grade
            raise BuildError(f"{name}: {pair.id} has two different texts.")
    return answers


def _in_zip(raw: Raw, pattern: str) -> tuple[str, bytes]:
    """Return the matching file of the zip of grades, which is in the folder or in MedQuAD's archive."""
    beside = raw.find(GRADES_ZIP)
    inside = [] if beside else list(_medquad(raw).members(re.escape(GRADES_ZIP) + "$"))
    if not beside and not inside:
        raise BuildError(f"{raw.folder} has no {GRADES_ZIP}; expected {MEDQUAD_SOURCE}.")
    archive = Archive(beside[0]) if beside else Archive(raw.folder / GRADES_ZIP, inside[0][1])
    members = [one for one in archive.members(pattern) if not one[0].startswith("__MACOSX")]
    if len(members) != 1:
        raise BuildError(f"{GRADES_ZIP}: expected one file like {pattern}, found {len(members)}.")
    return members[0]


def read_live_questions(raw: Raw, form: str = "original") -> dict[str, str]:
    """Return the LiveQA test questions by number.

    Args:
        raw: The raw files.
        form: `original` (subject and message as sent), `paraphrase` (by the assessors) or `summary`.

    Raises:
        BuildError: The file is missing or malformed.
    """
    path = raw.one(QUESTIONS_FILE, "the test questions of github.com/abachaa/LiveQA_MedicalTask_TREC2017")
    questions: dict[str, str] = {}
    for question in parse_xml(read_bytes(path), str(path)).iter("NLM-QUESTION"):
        number = (question.get("qid") or "").removeprefix("TQ")
        texts = []
        for tag in QUERY_ELEMENTS[form]:
            parts = question.find(tag)
            inside = [] if parts is None else [clean(part.text) for part in [parts, *parts]]
            # Some subjects only repeat the beginning of the message.
            distinct_parts = [one for one in inside if one and not any(one in o and one != o for o in inside)]
            texts.append("\n".join(dict.fromkeys(distinct_parts)))
        text = next((one for one in texts if one), "")
        if not number.isdigit() or not text or number in questions:
            raise BuildError(
                f"{path}: question {question.get('qid')!r} has no number, no text, or comes twice."
            )
        questions[number] = text
    return questions


def build_live_qa(raw: Raw, options: Mapping[str, str]) -> BuiltSet:
    """Build `MedQuADLiveQARetrieval`: LiveQA questions, MedQuAD's answers, grades as gains 0 to 3.

    Args:
        raw: The raw files.
        options: `queries` (see `read_live_questions`) and `grades` (`lower` or `higher`: the grade that
            counts if an answer has two).

    Raises:
        BuildError: A raw file is missing or malformed.
    """
    questions = read_live_questions(raw, options["queries"])
    judged, grades = read_judged_answers(raw), read_grades(raw)
    pairs, left_out = read_pairs(raw)
    gains, twice = _gains(grades, lower=options["grades"] == "lower")
    for question, answer_gains in gains.items():
        unknown = [answer for answer in answer_gains if answer not in judged]
        if question not in questions or unknown:
            raise BuildError(f"grades: question {question} or answer {unknown[:1]} has no text.")
    positive = {
        question: answer_gains for question, answer_gains in gains.items() if any(answer_gains.values())
    }
    known = {_key(pair.question, pair.answer) for pair in judged.values()}
    ungraded = [pair for pair in pairs if _key(pair.question, pair.answer) not in known]
    left_out["pairs that are among the graded answers"] = len(pairs) - len(ungraded)
    left_out["questions without an answer that is at least related"] = len(gains) - len(positive)
    return BuiltSet(
        task="MedQuADLiveQARetrieval",
        type="Retrieval",
        licence=LICENCE,
        note=_note(len(grades), twice, options),
        queries={f"TQ{question}": questions[question] for question in positive},
        corpus={pair.id: (pair.question, pair.answer) for pair in [*judged.values(), *ungraded]},
        qrels={f"TQ{question}": answer_gains for question, answer_gains in positive.items()},
        prompt=PROMPT,
        left_out=dict(left_out),
        options=options,
    )


def _note(grades: int, twice: int, options: Mapping[str, str]) -> str:
    return (
        "Consumer health questions of TREC 2017 LiveQA (medical task) against the answers of MedQuAD, with "
        f"{grades:,} grades by people: 1 incorrect, 2 related, 3 incomplete, 4 excellent, as gains 0, 1, 2, "
        f"3 (the track's own scale). {twice:,} answers have two different grades for one question; the "
        f"{options['grades']} one counts. A document is an answer with the question of its page as title. "
        "Answers that were not graded count as not relevant: judged@10 and condensed nDCG say how much that "
        "matters. MedQuAD's answers from three MedlinePlus collections were removed by its authors; of those "
        "only graded ones are here."
    )


def _gains(grades: Sequence[Grade], *, lower: bool) -> tuple[dict[str, dict[str, int]], int]:
    """Return gains 0 to 3 by question and answer, and the number of pairs with two different grades."""
    gains: dict[str, dict[str, int]] = {}
    twice: set[tuple[str, str]] = set()
    for grade in grades:
        answer_gains, gain = gains.setdefault(grade.question, {}), grade.grade - 1
        before = answer_gains.get(grade.answer, gain)
        if before != gain:
            twice.add((grade.question, grade.answer))
        answer_gains[grade.answer] = min(before, gain) if lower else max(before, gain)
    return gains, len(twice)


def _key(question: str, answer: str) -> tuple[str, str]:
    return in_one_line(question).lower(), in_one_line(answer).lower()
