"""Step `verify`: cases are assessed, and two agents check each piece of advice with passages of guidelines.

LiveMedBench's validator is one LLM with three scores: the clinical category, the share of the required
information that the case gives, and the mean verdict on the advice against retrieved passages. Here a second
agent tries to refute the advice with the same passages.

Source: LiveMedBench; its prompts and the number of passages are not published. The categories are those of
J. W. Ely et al., BMJ 321, 2000, without the non-clinical one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from mar_st.options import Argument, FromFile
from mar_st.text.values import TsvCell, as_grade
from medteb_mteb.curation.cases.screen import CASES, case_text, read_cases
from medteb_mteb.curation.llm.client import object_schema
from medteb_mteb.curation.llm.settings import LLM, WriterSettings, added, ask_llm, written_by
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.llm.tolerant import Rejected, json_object
from medteb_mteb.curation.pooling import find_passages
from medteb_mteb.curation.step import Counts, Estimate, Input, Model, Step
from medteb_mteb.curation.training.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.llm.generate import Generation

#: Clinical categories of a question, and the word for any other question.
CATEGORIES, NO_CATEGORY = ("diagnosis", "treatment", "management", "epidemiology"), "none"
#: Share of the required information above which a case is kept.
MIN_INFORMATION = 0.5
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_REQUIRED = {"type": "array", "items": object_schema({"item": _TEXT, "narrative": _NUMBER})}
_ASSESS = template(__file__, "assess", schema=object_schema({"category": _TEXT, "required": _REQUIRED}))
_VERDICT = object_schema({"verdict": _TEXT, "passage": _NUMBER})
#: The prompts of the two agents, and their verdicts, true if they rely on a passage.
AGENTS = {name: template(__file__, name, "evidence", schema=_VERDICT) for name in ("claim", "refute")}
VERDICTS = {
    "claim": {"supported": True, "contradicted": True, "neutral": False},
    "refute": {"refuted": True, "stands": False},
}
#: Tokens of an assessment, and of a verdict.
ASSESSMENT_TOKENS, VERDICT_TOKENS = 300, 30
#: Characters of a passage that are shown.
PASSAGE_CHARACTERS = 1000


class VerifySettings(WriterSettings):
    """Options of `medteb verify`."""

    cases: Annotated[Path, Argument(), Input("cases")] = Field(
        description="Cases: the folder of 'medteb screen'."
    )
    guidelines: Annotated[Path, Input("file", "texts")] = Field(
        description="Guidelines: a folder of 'mar index', or texts, which BM25 searches."
    )
    encoder: Annotated[str | None, Model()] = Field(
        None, description="Query encoder of the index; default: the index's model."
    )
    refuter: Annotated[LLM | None, FromFile()] = Field(
        None, description="YAML file of the LLM that tries to refute; default: that of --llm."
    )
    passages: int = Field(10, ge=1, le=100, description="Passages for each piece of advice.")

    def check(self) -> None:
        """Check that the keys of both LLMs are set."""
        super().check()
        self.llm_of("refute").key()

    def llm_of(self, name: str) -> LLM:
        """Return the LLM that answers a prompt."""
        return self.refuter if name == "refute" and self.refuter is not None else self.llm


class Item(NamedTuple):
    """A piece of advice of a case, and the passages that were found for it."""

    key: str
    case: Mapping[str, Any]
    advice: str
    passages: Sequence[Mapping[str, str]]


def is_fit(assessment: Mapping[str, Any]) -> bool:
    """Return True if a question is clinical and the case gives most of what answering it takes."""
    return bool(assessment["category"] != NO_CATEGORY and assessment["information"] > MIN_INFORMATION)


def verify(settings: VerifySettings) -> Counts:
    """Assess cases, and have two agents check each piece of advice with passages of guidelines.

    The first agent says whether the passages support the advice, the second one tries to refute it with them.
    `cases.jsonl` has the scores and both verdicts; cases that fail the assessment have no claims, since no
    verdict is paid for them. `dropped.jsonl` has the ids of cases without a usable answer.
    """
    cases = read_cases(settings.cases, "screen")
    # A month may have so few cases that all of them fail.
    options: dict[str, Any] = {"out": settings.out, "may_fail": True}
    questions = [_question(case) for case in cases]
    read = partial(_assessment, {case["_id"]: len(case["narrative"]) for case in cases})
    asked = {"assess": ask_llm(settings.llm, questions, _ASSESS.version, read, name="assess", **options)}
    answers = asked["assess"].answers
    fit = [case for case in cases if case["_id"] in answers and is_fit(answers[case["_id"]])]
    items = [] if asked["assess"].stopped else _items(fit, settings)
    shown = {item.key: len(item.passages) for item in items}
    for agent in AGENTS:
        if not any(one.stopped for one in asked.values()):
            prompts = [_evidence(agent, item) for item in items if item.passages]
            llm, verdict = settings.llm_of(agent), partial(_verdict, agent, shown)
            asked[agent] = ask_llm(llm, prompts, AGENTS[agent].version, verdict, name=agent, **options)
    stopped = next((one.stopped for one in asked.values() if one.stopped), "")
    rows = Rows()
    if not stopped:
        by_case: dict[str, list[Item]] = {}
        for item in items:
            by_case.setdefault(item.case["_id"], []).append(item)
        for case in cases:
            _take(case, by_case.get(case["_id"], []), asked, rows)
        rows.write(settings.out, CASES, "dropped")
    return Counts(
        rows.number(CASES),
        queries=len(items),
        details={"read": len(cases), **rows.details(), **{name: one.counts() for name, one in asked.items()}},
        stopped=stopped,
        provenance={
            "writers": [
                written_by(settings.llm_of(name), AGENTS.get(name, _ASSESS).version, one)
                for name, one in asked.items()
            ]
        },
    )


def _question(case: Mapping[str, Any]) -> Prompt:
    texts, about = {"case": case_text(case)}, (case["question"],)
    categories = ", ".join(CATEGORIES)
    return _ASSESS.prompt(
        case["_id"], case["language"], texts, ASSESSMENT_TOKENS, about=about, categories=categories
    )


def _assessment(sizes: Mapping[str, int], asked: Prompt, content: str) -> dict[str, Any]:
    """Return the category, and the share of required information that the narrative gives.

    Args:
        sizes: Number of items of the narrative by case.
        asked: The prompt.
        content: The answer.
    """
    answer = json_object(content)
    category, required = _word(answer.get("category")), answer.get("required")
    if category not in (*CATEGORIES, NO_CATEGORY):
        raise Rejected("no-category")
    if category == NO_CATEGORY:
        return {"category": category, "information": 0.0}
    if not isinstance(required, list) or not required:
        raise Rejected("no-information")
    places = [one.get("narrative") if isinstance(one, dict) else None for one in required]
    given = [_number(place, sizes[asked.key]) > 0 for place in places]
    return {"category": category, "information": round(sum(given) / len(given), 4)}


def _verdict(agent: str, shown: Mapping[str, int], asked: Prompt, content: str) -> tuple[str, int]:
    """Return an agent's verdict and the number of the passage that it relies on, 0 for none.

    Args:
        agent: The agent.
        shown: Number of passages by prompt.
        asked: The prompt.
        content: The answer.
    """
    answer = json_object(content)
    verdict = _word(answer.get("verdict"))
    if verdict not in VERDICTS[agent]:
        raise Rejected("no-verdict")
    number = _number(answer.get("passage"), shown[asked.key]) if VERDICTS[agent][verdict] else 0
    if VERDICTS[agent][verdict] and not number:
        raise Rejected("no-passage")
    return verdict, number


def _word(value: Any) -> str:
    return str(value).strip().lower()


def _number(value: Any, largest: int) -> int:
    number = as_grade(TsvCell(value))  # LLMs also write "3"
    if number is None or not 0 <= number <= largest:
        raise Rejected("no-such-number")
    return number


def _items(cases: Sequence[Mapping[str, Any]], settings: VerifySettings) -> list[Item]:
    """Return all pieces of advice, each with the passages found for it together with the question."""
    advice = [
        (f"{case['_id']} {number}", case, text)
        for case in cases
        for number, text in enumerate(case["advice"])
    ]
    queries = [f"{case['question']} {text}" for _, case, text in advice]
    found = find_passages(settings.guidelines, queries, settings.passages, settings.encoder)
    return [Item(*one, passages) for one, passages in zip(advice, found, strict=True)]


def _evidence(agent: str, item: Item) -> Prompt:
    passages = "\n\n".join(
        f"[{number}] {one['text'][:PASSAGE_CHARACTERS]}" for number, one in enumerate(item.passages, 1)
    )
    texts = {"case": case_text(item.case), "advice": item.advice, "passages": passages}
    language, about = item.case["language"], (item.case["question"],)
    return AGENTS[agent].prompt(item.key, language, texts, VERDICT_TOKENS, about=about)


def _take(
    case: Mapping[str, Any], items: Sequence[Item], asked: Mapping[str, Generation[Any]], rows: Rows
) -> None:
    """Add a case with its scores and claims to `rows`, or drop it if an answer is missing."""
    keys = {"assess": [case["_id"]], **{agent: [item.key for item in items] for agent in AGENTS}}
    failed = [asked[name].failed[key] for name in keys for key in keys[name] if key in asked[name].failed]
    if failed:
        rows.drop({"_id": case["_id"]}, f"failed-{failed[0]}")
        return
    claims = [_claim(item, *(asked[agent].answers.get(item.key) for agent in AGENTS)) for item in items]
    rows.add(CASES, {**case, **asked["assess"].answers[case["_id"]], "claims": claims})


def _claim(item: Item, claim: tuple[str, int] | None, attack: tuple[str, int] | None) -> dict[str, Any]:
    """Return both verdicts on a piece of advice; without passages nothing supports or refutes it."""
    verdict, passage = claim or ("neutral", 0)
    outcome, counter = attack or ("stands", 0)
    places = {"passage": passage, "counter": counter}
    cited = {key: item.passages[number - 1] for key, number in places.items() if number}
    claim_id = {"_id": item.key, "advice": item.advice}
    return {**claim_id, "verdict": verdict, "refuted": outcome == "refuted", **cited}


def _estimate(settings: VerifySettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate the requests as if no case failed the assessment and all passages were long."""
    cases, advice = sizes["cases"].rows, sizes["cases"].queries
    case = {"_id": "x", "language": "zh", "question": "字" * 30, "narrative": ["字" * 30] * 8}
    passage = {"_id": "x", "text": "字" * PASSAGE_CHARACTERS}
    item = Item("x", case, "字" * 50, [passage] * settings.passages)
    requests = [settings.llm.estimate(0, cases, _question(case).tokens)]
    requests += [settings.llm_of(one).estimate(0, advice, _evidence(one, item).tokens) for one in AGENTS]
    return added(requests, cases, advice)


VERIFY = Step(
    "verify",
    VerifySettings,
    verify,
    "cases",
    estimate=_estimate,
    result_file=f"{CASES}.jsonl",
    asks=True,
    version=" ".join(one.version for one in (_ASSESS, *AGENTS.values())),
)
