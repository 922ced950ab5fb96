"""Step `screen`: threads of medical forums that are clinical cases, each as narrative, question and advice.

LiveMedBench has one LLM extract the parts and another audit that they are in the thread. Here narrative and
advice are quotations, so the audit is a comparison of strings, and only the question is the LLM's wording.

Source: the screener and the controller of LiveMedBench; its prompts are not published, these are ours.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.options import Argument
from mar_st.text.texts import normalise
from mar_st.text.values import writable
from medteb_mteb.curation.files.read import read_texts
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.judge.injection import remarks
from medteb_mteb.curation.lineage import lineage
from medteb_mteb.curation.llm.client import STRINGS_SCHEMA, object_schema
from medteb_mteb.curation.llm.settings import PrivateSettings, WriterSettings
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.llm.tolerant import Rejected, json_object
from medteb_mteb.curation.step import Counts, Estimate, Input, Step, tokens_of
from medteb_mteb.curation.synthetic.checks import strings_of, tidied
from medteb_mteb.curation.synthetic.forms import LANGUAGES, written_in
from medteb_mteb.curation.texts.near_duplicates import NearDuplicates
from medteb_mteb.curation.training.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.synthetic.forms import Language

#: Name of the file of cases in the folder of a step.
CASES = "cases"
#: Pieces of advice of a case at most.
MAX_ADVICE = 8
#: Characters of a thread at most; a longer one is dropped, since a part of it is not the case.
LONGEST = 20_000
#: Reasons that the LLM may give to drop a thread; any other is counted as `not-clinical`.
REASONS = ("not-clinical", "advertisement", "no-narrative", "no-question", "no-advice")

_TEXT = {"type": "string"}
_PARTS = {"reason": _TEXT, "narrative": STRINGS_SCHEMA, "question": _TEXT, "advice": STRINGS_SCHEMA}
_SCREEN = template(__file__, "screen", schema=object_schema(_PARTS))
#: Tokens of an answer without quotations.
_ANSWER_TOKENS = 100
_PICTURE = re.compile(r"!\[|<img\b|\[(图片|图|image|photo)\]|\.(jpe?g|png|gif|webp)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class ScreenSettings(WriterSettings, PrivateSettings):
    """Options of `medteb screen`."""

    threads: Annotated[Path, Argument(), Input("texts")] = Field(
        description="Threads: rows with _id, date, text and replies, a list of {text, verified}."
    )
    since: str = Field(
        "2023-01-01", pattern=r"^\d{4}-\d{2}(-\d{2})?$", description="Day or month of the oldest thread."
    )


def screen(settings: ScreenSettings) -> Counts:
    """Keep the threads of a forum that are clinical cases, as narrative, question and advice.

    Rules drop threads without a date or a verified reply, old ones, pictures, and near-duplicates; then an
    LLM extracts the parts. What it quotes and is not in the thread is left out. `cases.jsonl` has the cases,
    `dropped.jsonl` the ids of the other threads with the reason.
    """
    rows = Rows()
    threads = list(read_texts(settings.threads))
    chosen = _chosen(threads, settings.since, rows)
    settings.refuse_private(threads=chosen)
    prompts = [_prompt(one) for one in chosen]
    # A month may have so few threads that all of them fail.
    generation = settings.ask(prompts, _SCREEN.version, _read, "screen", may_fail=True)
    if not generation.stopped:
        for thread in chosen:
            if thread.id in generation.failed:
                rows.drop({"_id": thread.id}, f"failed-{generation.failed[thread.id]}")
            else:
                _take(thread, generation.answers[thread.id], rows)
        rows.write(settings.out, CASES, "dropped")
    return Counts(
        rows.number(CASES),
        queries=sum(len(case["advice"]) for case in rows.files.get(CASES, ())),
        details={"read": len(threads), **rows.details(), **generation.counts()},
        notes=remarks(("\n".join(one.fields) for one in chosen), "threads"),
        stopped=generation.stopped,
        provenance=settings.provenance(_SCREEN.version, generation),
    )


def _chosen(threads: Iterable[Text], since: str, rows: Rows) -> list[Text]:
    """Return the threads to send; count the others."""
    checked = [(thread, _problem(thread, since)) for thread in threads]
    usable = [thread for thread, problem in checked if not problem]
    dropped = [Dropped(thread, problem) for thread, problem in checked if problem]
    outcomes = [*dropped, *NearDuplicates()(usable)]
    for one in outcomes:
        if isinstance(one, Dropped):
            rows.drop({"_id": one.text.id}, one.reason, one.detail)
    return [one for one in outcomes if isinstance(one, Text)]


def _problem(thread: Text, since: str) -> str:
    """Return the reason why a thread is dropped before an LLM sees it; empty if there is none."""
    text = "\n".join([thread.full, *_verified(thread)])
    characters = "".join(text.split())
    rules = {
        "no-date": not thread.date,
        "too-old": thread.date < since[: len(thread.date)],
        "no-verified-reply": not _verified(thread),
        "picture": _PICTURE.search(text) is not None,
        "few-words": 2 * sum(map(str.isalnum, characters)) <= len(characters),
        "other-language": _language(thread) is None,
        "too-long": len(text) > LONGEST,
    }
    return next((reason for reason, applies in rules.items() if applies), "")


def _verified(thread: Text) -> list[str]:
    return [reply["text"] for reply in thread.replies if reply["verified"]]


def _language(thread: Text) -> Language | None:
    return next((one for one in LANGUAGES if written_in(thread.full, one)), None)


def _prompt(thread: Text) -> Prompt:
    texts = {"post": thread.full, "replies": "\n\n".join(_verified(thread))}
    tokens = _ANSWER_TOKENS + sum(map(tokens_of, texts.values()))  # it quotes at most everything
    language, reasons = _language(thread) or "en", ", ".join(REASONS)
    return _SCREEN.prompt(thread.id, language, texts, tokens, most=MAX_ADVICE, reasons=reasons)


def _read(asked: Prompt, content: str) -> dict[str, Any]:
    """Return the parts that an LLM has extracted from a thread, or its `reason` to drop the thread."""
    answer = json_object(content)
    if reason := str(answer.get("reason") or ""):
        return {"reason": reason if reason in REASONS else REASONS[0]}
    question = answer.get("question")
    if not isinstance(question, str):
        raise Rejected("not-strings")
    narrative, advice = (strings_of(key)(asked, content) for key in ("narrative", "advice"))
    return {"narrative": narrative, "question": tidied(writable(question)), "advice": advice}


def _take(thread: Text, found: Mapping[str, Any], rows: Rows) -> None:
    """Add the case of a thread to `rows`, with what is in the thread only."""
    if "reason" in found:
        rows.drop({"_id": thread.id}, found["reason"])
        return
    case = {
        "narrative": _quoted(found["narrative"], [thread.full]),
        "question": found["question"] if _numbers(found["question"]) <= _numbers(thread.full) else "",
        "advice": _quoted(found["advice"], _verified(thread)),
    }
    for key in ("narrative", "advice"):
        rows.counts["not in the thread"] += len(set(found[key])) - len(case[key])
    missing = next((key for key, part in case.items() if not part), "")
    if missing:
        rows.drop({"_id": thread.id}, f"{'unfounded' if found[missing] else 'no'}-{missing}")
        return
    case["advice"] = case["advice"][:MAX_ADVICE]
    rows.add(CASES, {"_id": thread.id, "date": thread.date, "language": _language(thread), **case})


def _quoted(items: Iterable[str], sources: Sequence[str]) -> list[str]:
    """Return the items, each once, that are in one of the sources but for punctuation and blanks."""

    def is_in(item: str, source: str) -> bool:
        # Without its point, 2.5 is 25.
        return normalise(item) in normalise(source) and _numbers(item) <= _numbers(source)

    some = [item for item in dict.fromkeys(items) if normalise(item)]
    return [item for item in some if any(is_in(item, source) for source in sources)]


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(unicodedata.normalize("NFKC", text)))


def read_cases(path: Path, step: str) -> list[dict[str, Any]]:
    """Return the cases that a step has written.

    Raises:
        MarError: They were not written by this step, or it is not finished.
    """
    before = lineage(path)
    if not before or before[-1]["step"] != step:
        raise MarError(f"{path} was not written by 'medteb {step}'; give the folder of that step.")
    return [row.values for row in read_rows(path, table=CASES)]


def case_text(case: Mapping[str, Any]) -> str:
    """Return a case as it is shown: the narrative in numbered items, then the question."""
    items = [f"{number}. {item}" for number, item in enumerate(case["narrative"], 1)]
    return "\n".join([*items, "", case["question"]])


def _estimate(settings: ScreenSettings, sizes: Mapping[str, Estimate]) -> Estimate:
    """Estimate the requests from the mean length, as if no rule dropped a thread."""
    threads = sizes["threads"]
    asked = settings.estimate(_prompt(Text("x", threads.mean_text)), threads.rows, threads.rows)
    return replace(asked, queries=threads.rows * MAX_ADVICE)


SCREEN = Step(
    "screen",
    ScreenSettings,
    screen,
    "cases",
    estimate=_estimate,
    result_file=f"{CASES}.jsonl",
    asks=True,
    version=_SCREEN.version,
)
