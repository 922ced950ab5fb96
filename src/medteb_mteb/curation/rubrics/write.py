"""Steps in which LLMs write: `rubrics`, criteria from physicians' answers, and `answer`, answers.

LiveMedBench's generator asks Qwen3-4B for yes/no criteria of both polarities, with an axis and a weight from
-10 to 10; its prompts are not published, and these are ours. A second prompt finds criteria that cannot be
decided from an answer alone.

As in LiveMedBench, the instruction of `answer` is Chinese if the question has a Chinese character, else
English, and asks for the answer without reasoning.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Argument, Switch
from mar_st.text.values import TsvCell, as_grade, writable
from medteb_mteb.curation.llm.client import object_schema
from medteb_mteb.curation.llm.settings import PrivateSettings, WriterSettings, added, ask_llm
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.llm.tolerant import Rejected, json_object, objects_in, spoken
from medteb_mteb.curation.pooling import find_passages
from medteb_mteb.curation.rubrics.files import AXIS, Case, language_of, read_cases, read_rubrics
from medteb_mteb.curation.step import Counts, Estimate, Input, Model, Step, tokens_of
from medteb_mteb.curation.texts.near_duplicates import jaccard, shingles
from medteb_mteb.curation.training.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.rubrics.files import Rubric

#: The axes of LiveMedBench, as in tags.
AXES = ("accuracy", "completeness", "communication_quality", "context_awareness", "safety")
#: Points at most; for a criterion on which a life may depend.
MOST_POINTS = 10
#: Jaccard similarity of character bigrams from which two criteria of a rubric say the same.
OVERLAP = 0.6
#: Assumed characters of a case, and tokens of a criterion in an answer.
CASE_LENGTH, CRITERION_TOKENS = 1500, 70

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_CRITERION = {"criterion": _TEXT, "axis": {**_TEXT, "enum": list(AXES)}, "points": _NUMBER}
_CRITERIA = {"criteria": {"type": "array", "items": object_schema(_CRITERION)}}
_NUMBERS = {"undecidable": {"type": "array", "items": _NUMBER}}
_WRITE = template(__file__, "rubrics", schema=object_schema(_CRITERIA))
_CHECK = template(__file__, "decidable", schema=object_schema(_NUMBERS))


class RubricsSettings(WriterSettings, PrivateSettings):
    """Options of `medteb rubrics`."""

    cases: Annotated[Path, Argument(), Input("cases")] = Field(
        description="Cases, or rows with _id, question and a physician's answer."
    )
    most: int = Field(12, ge=1, le=40, description="Maximum number of criteria of a rubric.")


def rubrics(settings: RubricsSettings) -> Counts:
    """Have an LLM turn physicians' answers into criteria for other answers, and check them.

    `rubrics.jsonl` has HealthBench's form, `dropped.jsonl` the criteria that were dropped, with the reason,
    and `failed.jsonl` the cases without a usable rubric.
    """
    cases = [case for case in read_cases(settings.cases) if case.advice]
    if not cases:
        raise MarError(f"No case of {settings.cases} has the advice or answer of a physician.")
    settings.refuse_raw(settings.cases)
    prompts = [_rubrics_prompt(case, settings.most) for case in cases]
    written = settings.ask(prompts, _WRITE.version, partial(_read_criteria, settings.most), "rubrics")
    kept = {name: [one for one, reason in some if not reason] for name, some in written.answers.items()}
    checks = [_decidable_prompt(case, kept[case.id]) for case in cases if kept.get(case.id)]
    checked = settings.ask([] if written.stopped else checks, _CHECK.version, _read_undecidable, "decidable")
    details: dict[str, Any] = {"cases": len(cases)}
    paid = {"written": written.counts(), "checked": checked.counts()}
    if stopped := written.stopped or checked.stopped:
        return Counts(0, details={**details, **paid}, stopped=stopped)
    rows, axes = Rows(), Counter[str]()
    for case in cases:
        good = []
        for row, reason in written.answers.get(case.id, ()):
            if not reason and kept[case.id].index(row) + 1 in checked.answers.get(case.id, ()):
                reason = "undecidable"
            if reason:
                rows.drop({"_id": case.id, "criterion": row["criterion"]}, reason)
            else:
                good.append(row)
        failed = written.failed.get(case.id) or checked.failed.get(case.id)
        if failed or not any(row["points"] > 0 for row in good):
            rows.add("failed", {"_id": case.id, "reason": failed or "no-positive"})
            continue
        axes.update(row["tags"][0].removeprefix(AXIS) for row in good)
        dated = {"date": case.date} if case.date else {}
        prompt = [{"role": "user", "content": case.question}]
        rows.add("rubrics", {"_id": case.id, **dated, "prompt": prompt, "rubrics": good})
    rows.write(settings.out, "rubrics", "dropped")
    details |= {"criteria": axes.total(), "axes": dict(axes.most_common()), **rows.details()}
    return Counts(
        rows.number("rubrics"),
        details={**details, "without a rubric": rows.number("failed"), **paid},
        provenance=settings.provenance(_WRITE.version, written),
    )


def _rubrics_prompt(case: Case, most: int) -> Prompt:
    texts = {"question": case.question, "advice": case.advice}
    return _WRITE.prompt(case.id, language_of(case.question), texts, CRITERION_TOKENS * most, most=most)


def _read_criteria(most: int, prompt: Prompt, content: str) -> list[tuple[dict[str, Any], str]]:
    """Return the criteria of an answer, each with the reason why it is not kept, or an empty one.

    Raises:
        Rejected: `no-criteria`: there is none.
    """
    del prompt
    outcomes: list[tuple[dict[str, Any], str]] = []
    kept: list[frozenset[str]] = []
    for values in objects_in(content):
        text, given = values.get("criterion"), values.get("points")
        points = as_grade(TsvCell(given) if isinstance(given, str) else given)
        if not isinstance(text, str) or not text.strip():
            continue
        axis = str(values.get("axis", "")).strip().lower().replace(" ", "_")
        grams, reason = shingles(text, 2), ""
        if not points or abs(points) > MOST_POINTS:
            reason = "points"
        elif axis not in AXES:
            reason = "axis"
        elif any(jaccard(grams, other) >= OVERLAP for other in kept):
            reason = "overlap"
        elif len(kept) == most:
            reason = "too-many"
        else:
            kept.append(grams)
        row = {"criterion": " ".join(writable(text).split()), "points": points, "tags": [f"{AXIS}{axis}"]}
        outcomes.append((row, reason))
    if not outcomes:
        raise Rejected("no-criteria")
    return outcomes


def _decidable_prompt(case: Case, criteria: Sequence[Mapping[str, Any]]) -> Prompt:
    lines = "\n".join(f"{number}. {row['criterion']}" for number, row in enumerate(criteria, 1))
    texts, tokens = {"question": case.question, "criteria": lines}, 20 + 4 * len(criteria)
    return _CHECK.prompt(case.id, language_of(case.question), texts, tokens, about=(case.advice,))


def _read_undecidable(prompt: Prompt, content: str) -> frozenset[int]:
    """Return the numbers of the criteria that cannot be decided.

    Raises:
        Rejected: `no-json`, or `not-numbers`.
    """
    del prompt
    numbers = json_object(content).get("undecidable")
    if not isinstance(numbers, list) or any(as_grade(one) is None for one in numbers):
        raise Rejected("not-numbers")
    return frozenset(map(int, numbers))


def _estimate_rubrics(settings: RubricsSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate two requests for each case, of an assumed length."""
    cases, case = sizes["cases"].rows, Case.model_validate({"_id": "x", "question": "字" * CASE_LENGTH})
    criteria = [{"criterion": "字" * 40}] * settings.most
    asked = (_rubrics_prompt(case, settings.most), _decidable_prompt(case, criteria))
    return added([settings.estimate(like, cases, cases) for like in asked], cases)


RUBRICS = Step(
    "rubrics",
    RubricsSettings,
    rubrics,
    "rubrics",
    estimate=_estimate_rubrics,
    result_file="rubrics.jsonl",
    asks=True,
    version=f"{_WRITE.version} {_CHECK.version}",
)


_PLAIN = template(__file__, "question", system="answer")
_CONTEXT = template(__file__, "passages", "question", system="answer")
#: Tokens of an answer in an estimate, and assumed tokens of a question and of a passage.
ANSWER_TOKENS, QUESTION_TOKENS, PASSAGE_TOKENS = 2048, 500, 500


class AnswerSettings(WriterSettings, PrivateSettings):
    """Options of `medteb answer`."""

    rubrics: Annotated[Path, Argument(), Input("rubrics")] = Field(
        description="Rubrics, in our form, HealthBench's or LiveMedBench's; only their questions are used."
    )
    context: Annotated[Path | None, Input("file", "texts")] = Field(
        None, description="Passages for the LLM: a folder of 'mar index', or texts; default: none."
    )
    encoder: Annotated[str | None, Model()] = Field(
        None, description="Query encoder; default: the model that encoded the index."
    )
    k: Annotated[int, Switch("-k")] = Field(5, ge=1, le=100, description="Number of passages.")
    system: str | None = Field(
        None, description="Name of the system in the answers; default: those of LLM and index."
    )


def answer(settings: AnswerSettings) -> Counts:
    """Have an LLM answer the questions of rubrics.

    `answers.jsonl` has the answers; `failed.jsonl` the questions without one, with the reason. An answer that
    was cut off counts as none.
    """
    rubrics = read_rubrics(settings.rubrics)
    settings.refuse_raw(settings.rubrics)
    found: list[list[dict[str, str]]] = [[]] * len(rubrics)
    if settings.context is not None:
        questions = [rubric.question for rubric in rubrics]
        found = find_passages(settings.context, questions, settings.k, settings.encoder)
    prompts = [_prompt(rubric, passages) for rubric, passages in zip(rubrics, found, strict=True)]
    llm = settings.llm.model_copy(update={"answer": "text"})
    generation = ask_llm(llm, prompts, _CONTEXT.version, _read, name="answer", out=settings.out)
    name = settings.system or "+".join([llm.name, *([settings.context.stem] if settings.context else [])])
    if not generation.stopped:
        rows = Rows()
        for rubric, passages in zip(rubrics, found, strict=True):
            if rubric.id in generation.failed:
                rows.add("failed", {"_id": rubric.id, "reason": generation.failed[rubric.id]})
                continue
            row = {"_id": rubric.id, "system": name, "answer": generation.answers[rubric.id]}
            shown = {"passages": [one["_id"] for one in passages]} if passages else {}
            rows.add("answers", {**row, **shown})
        rows.write(settings.out, "answers", "failed")
    return Counts(
        len(generation.answers),
        sum(map(tokens_of, generation.answers.values())),
        details={"questions": len(rubrics), "system": name, **generation.counts()},
        stopped=generation.stopped,
        provenance=settings.provenance(_CONTEXT.version, generation),
    )


def _prompt(rubric: Rubric, passages: Sequence[Mapping[str, str]]) -> Prompt:
    shown = tuple(one["text"] for one in passages)
    texts = {"question": rubric.question, **({"passages": "\n\n".join(shown)} if shown else {})}
    form = _CONTEXT if shown else _PLAIN
    return form.prompt(rubric.id, language_of(rubric.question), texts, ANSWER_TOKENS, about=shown)


def _read(prompt: Prompt, content: str) -> str:
    del prompt
    text = spoken(content)
    if not text:
        raise Rejected("empty")
    return text


def _estimate_answers(settings: AnswerSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate a request for each question, of an assumed length."""
    questions = sizes["rubrics"].rows
    passages = settings.k * PASSAGE_TOKENS if settings.context is not None else 0
    return settings.llm.estimate(questions, questions, (QUESTION_TOKENS + passages, ANSWER_TOKENS))


ANSWER = Step(
    "answer",
    AnswerSettings,
    answer,
    "answers",
    estimate=_estimate_answers,
    result_file="answers.jsonl",
    asks=True,
    version=_CONTEXT.version,
)
