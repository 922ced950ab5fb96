"""The step `judge`: have several judges grade every pair of the pools."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.options import FromFile
from medteb_mteb.curation.judge.judges import Judge, Judges
from medteb_mteb.curation.judge.judging import grade_pools
from medteb_mteb.curation.judge.material import PooledSettings, read_material
from medteb_mteb.curation.judge.plan import PASSAGE_TOKENS, PROMPT_TOKENS
from medteb_mteb.curation.judge.prompt import answer_tokens, prompt_version
from medteb_mteb.curation.llm.journal import journal_path
from medteb_mteb.curation.llm.settings import added
from medteb_mteb.curation.step import Counts, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medteb_mteb.curation.step import Estimate


class JudgeSettings(PooledSettings):
    """Options of `medteb judge`."""

    judges: Annotated[Judges, FromFile()] = Field(description="YAML file of the judges.")

    def check(self) -> None:
        """Check that the keys are set and the cross-encoders exist."""
        for one in self.judges.judges:
            one.key()
            one.description()


def judge(settings: JudgeSettings) -> Counts:
    """Have LLM judges grade every pair of the pools.

    A judgement in the journal, from this build or any other, is never paid for again.
    """
    material = read_material(settings)
    report = grade_pools(material, settings.judges, settings.out, journal_path(settings.out))
    stopped = "; ".join(f"{one['judge']}: {one['stopped']}" for one in report["judges"] if "stopped" in one)
    return Counts(
        report["pairs"],
        queries=len(material.queries),
        details={one["judge"]: _counts(one) for one in report["judges"]},
        notes=tuple(report["notes"]),
        stopped=stopped,
        provenance={"judges": report["provenance"]},
    )


def _counts(report: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key != "judge" and value not in ({}, 0)}


def _estimate(settings: JudgeSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate the requests from the mean lengths; judgements in the journal are not subtracted."""
    llms = [one for one in settings.judges.judges if isinstance(one, Judge)]
    pools = sizes["pools"]
    return added([_estimate_of(one, sizes) for one in llms], pools.rows, pools.queries)


def _estimate_of(judge: Judge, sizes: Mapping[str, Estimate]) -> Estimate:
    queries, documents, pools = (sizes[name] for name in ("queries", "documents", "pools"))
    query_tokens = queries.tokens / max(1, queries.rows)
    passage_tokens = documents.tokens / max(1, documents.rows) + PASSAGE_TOKENS
    # Every request may carry two control passages.
    room = int((judge.prompt_tokens - PROMPT_TOKENS - query_tokens) // passage_tokens) - 2
    passages = max(1, min(judge.passages, room))
    number = max(1, pools.queries or queries.rows)
    requests = number * math.ceil(pools.rows / number / passages)
    shown = pools.rows / max(1, requests) + 2
    prompt = round(PROMPT_TOKENS + query_tokens + shown * passage_tokens)
    return judge.estimate(pools.rows, requests, (prompt, answer_tokens(math.ceil(shown))))


JUDGE = Step(
    "judge", JudgeSettings, judge, "judgements", estimate=_estimate, asks=True, version=prompt_version()
)
