"""The forms of a synthetic query: a question, keywords, or a case; how each is requested and checked."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.curation.synthetic.languages import Language

__all__ = ["DEFAULT_FORMS", "FORMS", "Form", "draw_forms", "form_problem", "parse_forms"]


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a query.

    Attributes:
        described: Description in the prompt, by language.
        bounds: Smallest and largest accepted length, by language; wider than requested.
    """

    described: Mapping[Language, str]
    bounds: Mapping[Language, tuple[int, int]]


FORMS: dict[str, Form] = {
    "question": Form(
        {
            "zh": "一个完整的问句，8到30个字",
            "en": "one complete question of 5 to 20 words",
        },
        {"zh": (4, 60), "en": (3, 40)},
    ),
    "keywords": Form(
        {
            "zh": "搜索关键词，4到15个字，词与词之间用空格隔开，不成句，不用疑问词和标点",
            "en": "search keywords, 2 to 6 words, no sentence, no question word, no punctuation",
        },
        {"zh": (2, 30), "en": (1, 12)},
    ),
    "case": Form(
        {
            "zh": "患者或家属的口吻：先用一两句话说明情况，再提一个问题，共30到80个字",
            "en": "in the words of a patient or relative: the situation in a sentence or two, then one "
            "question; 20 to 50 words",
        },
        {"zh": (12, 200), "en": (8, 120)},
    ),
}
#: Default share of each form. These are ours: nothing is published on the forms of synthetic queries.
DEFAULT_FORMS: dict[str, float] = {"question": 0.6, "keywords": 0.25, "case": 0.15}

_QUESTION = {
    "zh": re.compile(
        r"[?？]|什么|啥|怎么|怎样|咋|如何|为何|为啥|哪|多少|多久|多长|多大|多高|几[个种次天年岁点时]|是否|能否|可否|有无|"
        r"是不是|能不能|会不会|可不可以|要不要|有没有|需不需要|该不该|好不好|何[时种处者]|谁|[吗么呢]$"
    ),
    "en": re.compile(
        r"\?|^(what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|can|could|should|"
        r"would|will|may|must|has|have)\b",
        re.IGNORECASE,
    ),
}
_SENTENCE = re.compile(r"[。！!；;?？]|\.(\s|$)")


def form_problem(text: str, form: str, language: Language) -> str:
    """Return the reason why a query is not of its form; empty if it is."""
    asks = _QUESTION[language].search(text) is not None
    if form == "keywords":
        return "not-keywords" if asks or _SENTENCE.search(text) else ""
    return "" if asks else "not-a-question"


def parse_forms(entries: Sequence[str] | None) -> dict[str, float]:
    """Return the weights of `FORM=WEIGHT` entries; without entries, `DEFAULT_FORMS`.

    Raises:
        BuildError: A form is unknown, or no weight is above 0.
    """
    if not entries:
        return dict(DEFAULT_FORMS)
    weights: dict[str, float] = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        try:
            weight = float(value) if value else 1.0
        except ValueError:
            weight = -1.0
        if name not in FORMS or not 0 <= weight < float("inf"):
            raise BuildError(
                f"A form is given as FORM=WEIGHT, with {', '.join(FORMS)} and a number; got {entry!r}."
            )
        weights[name] = weight
    if not any(weights.values()):
        raise BuildError("No form of a query has a weight above 0.")
    return {name: weight for name, weight in weights.items() if weight}


def draw_forms(weights: Mapping[str, float], number: int, seed: str) -> tuple[str, ...]:
    """Draw the forms of a document's queries; a smaller number gives the first forms of a larger one."""
    # In the order of FORMS, so that the order of the given weights has no effect.
    names = [name for name in FORMS if weights.get(name)]
    return tuple(random.Random(seed).choices(names, [weights[name] for name in names], k=number))
