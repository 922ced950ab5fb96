"""The step `answer`: an LLM answers the questions of rubrics, with or without passages of an index.

As in LiveMedBench, the instruction is Chinese if the question has a Chinese character, else English, and asks
for the answer without reasoning.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.options import Argument, Switch
from medteb_mteb.curation.llm.settings import PrivateSettings, WriterSettings, ask_llm
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.llm.tolerant import Rejected, spoken
from medteb_mteb.curation.pooling import find_passages
from medteb_mteb.curation.rubrics.files import language_of, read_rubrics
from medteb_mteb.curation.step import Counts, Estimate, Input, Model, Step, tokens_of
from medteb_mteb.curation.training.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.rubrics.files import Rubric

_PLAIN = template(__file__, "question", system="answer")
_CONTEXT = template(__file__, "passages", "question", system="answer")
#: Tokens of an answer in an estimate, and assumed tokens of a question and of a passage.
ANSWER_TOKENS, QUESTION_TOKENS, PASSAGE_TOKENS = 2048, 500, 500


class AnswerSettings(WriterSettings, PrivateSettings):
    """Options of `medteb answer`."""

    rubrics: Annotated[Path, Argument(), Input("rubrics")] = Field(
        description="Rubrics, in our form, HealthBench's or LiveMedBench's; only their questions are used."
    )
    context: Annotated[Path | None, Input("file")] = Field(
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
    shown = [one["text"] for one in passages]
    texts = {"question": rubric.question, **({"passages": "\n\n".join(shown)} if shown else {})}
    language = language_of(rubric.question)
    made = _CONTEXT if shown else _PLAIN
    return made.prompt(rubric.id, language, texts, ANSWER_TOKENS, about=tuple(shown))


def _read(prompt: Prompt, content: str) -> str:
    del prompt
    text = spoken(content)
    if not text:
        raise Rejected("empty")
    return text


def _estimate(settings: AnswerSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate a request for each question, of an assumed length."""
    questions = sizes["rubrics"].rows
    passages = settings.k * PASSAGE_TOKENS if settings.context is not None else 0
    return settings.llm.estimate(questions, questions, (QUESTION_TOKENS + passages, ANSWER_TOKENS))


ANSWER = Step(
    "answer",
    AnswerSettings,
    answer,
    "answers",
    estimate=_estimate,
    result_file="answers.jsonl",
    asks=True,
    version=_CONTEXT.version,
)
