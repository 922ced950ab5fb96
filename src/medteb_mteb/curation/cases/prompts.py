"""The prompts about threads and cases, in the language of a thread, and the file of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from medteb_mteb.curation.lineage import lineage
from medteb_mteb.curation.llm.client import object_schema
from medteb_mteb.curation.llm.settings import ask_llm
from medteb_mteb.curation.llm.template import template
from medteb_mteb.curation.step import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.llm.config import LLM
    from medteb_mteb.curation.llm.generate import Generation
    from medteb_mteb.curation.synthetic.forms import Language

#: Name of the file of cases in the folder of a step.
CASES = "cases"

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_TEXTS = {"type": "array", "items": _TEXT}
_REQUIRED = {"type": "array", "items": object_schema({"item": _TEXT, "narrative": _NUMBER})}
_VERDICT = object_schema({"verdict": _TEXT, "passage": _NUMBER})
_EXTRACTION = object_schema({"reason": _TEXT, "narrative": _TEXTS, "question": _TEXT, "advice": _TEXTS})
#: Template and estimated tokens of the answer without quotations, by prompt.
_PROMPTS = {
    "screen": (template(__file__, "screen", schema=_EXTRACTION), 100),
    "assess": (
        template(__file__, "assess", schema=object_schema({"category": _TEXT, "required": _REQUIRED})),
        300,
    ),
    "claim": (template(__file__, "claim", "evidence", schema=_VERDICT), 30),
    "refute": (template(__file__, "refute", "evidence", schema=_VERDICT), 30),
}


def version(name: str) -> str:
    """Return the digest (16 hex digits) of a prompt in all languages, without its texts."""
    return _PROMPTS[name][0].version


def prompt(
    name: str,
    key: str,
    language: Language,
    texts: Mapping[str, str],
    about: tuple[str, ...] = (),
    **fields: Any,
) -> Prompt:
    """Return a prompt.

    Args:
        name: `screen`, `assess`, `claim` or `refute`.
        key: Key of the prompt.
        language: Language of the prompt.
        texts: Texts by field; they are shown between delimiters that they cannot contain.
        about: Further texts of persons that are parts of these.
        **fields: Other fields of the template.
    """
    made, tokens = _PROMPTS[name]
    if name == "screen":  # the answer quotes at most everything
        tokens += sum(map(tokens_of, texts.values()))
    return made.prompt(key, language, texts, tokens, about=about, **fields)


def ask(
    llm: LLM, name: str, prompts: Iterable[Prompt], read: Callable[[Prompt, str], Any], out: Path
) -> Generation[Any]:
    """Have an LLM answer a prompt for many texts; a month may have so few that all of them fail."""
    return ask_llm(llm, list(prompts), version(name), read, name=name, out=out, may_fail=True)


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
