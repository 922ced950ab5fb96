"""The prompts about threads and cases, in the language of a thread, and the file of cases."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from medteb_mteb.curation.judge.injection import defused, delimiter
from medteb_mteb.curation.lineage import lineage
from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text, version_of
from medteb_mteb.curation.llm.settings import ask_llm
from medteb_mteb.curation.step import tokens_of
from medteb_mteb.curation.synthetic.forms import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

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
#: Files, schema of the answer, and its estimated tokens without quotations, by prompt.
_PROMPTS: dict[str, tuple[tuple[str, ...], dict[str, Any], int]] = {
    "screen": (("screen",), _EXTRACTION, 100),
    "assess": (("assess",), object_schema({"category": _TEXT, "required": _REQUIRED}), 300),
    "claim": (("claim", "evidence"), _VERDICT, 30),
    "refute": (("refute", "evidence"), _VERDICT, 30),
}
_SYSTEM = {one: prompt_text(__file__, f"system-{one}").strip() for one in LANGUAGES}
_TEMPLATES = {
    (name, one): "".join(prompt_text(__file__, f"{file}-{one}") for file in files)
    for name, (files, *_) in _PROMPTS.items()
    for one in LANGUAGES
}


def version(name: str) -> str:
    """Return the digest (16 hex digits) of a prompt in all languages, without its texts."""
    return version_of(*(part for one in LANGUAGES for part in (_SYSTEM[one], _TEMPLATES[name, one])))


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
    _, schema, tokens = _PROMPTS[name]
    shown = {field: defused(text) for field, text in texts.items()}
    identity = hashlib.sha256("\0".join((name, *shown.values())).encode()).digest()
    word = delimiter(identity, tuple(shown.values()))
    user = _TEMPLATES[name, language].format(word=word, **shown, **fields)
    if name == "screen":  # the answer quotes at most everything
        tokens += sum(map(tokens_of, shown.values()))
    return Prompt(key, _SYSTEM[language], user, schema, tokens, texts=(*texts.values(), *about))


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
