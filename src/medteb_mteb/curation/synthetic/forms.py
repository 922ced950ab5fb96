"""The languages of synthetic texts, and the forms of a query: a question, keywords, or a case."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Language = Literal["zh", "en"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]")
_LATIN = re.compile(r"[A-Za-z]")
#: Minimum share of Chinese characters in a Chinese text, which may name drugs or genes in Latin letters; an
#: English text contains no Chinese characters.
_MIN_CHINESE_SHARE = 0.2


def size(text: str, language: Language) -> int:
    """Return the length of a text: characters without blanks in Chinese, words in English."""
    return len("".join(text.split())) if language == "zh" else len(text.split())


def written_in(text: str, language: Language) -> bool:
    """Return True if a text is in a language: Chinese has mostly Chinese characters, English has none."""
    chinese, latin = len(_HAN.findall(text)), len(_LATIN.findall(text))
    if language == "zh":
        return bool(chinese) and chinese >= _MIN_CHINESE_SHARE * (chinese + latin)
    return bool(latin) and not chinese


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
        {"zh": "一个完整的问句，8到30个字", "en": "one complete question of 5 to 20 words"},
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
#: Share of each form. These are ours: nothing is published on the forms of synthetic queries.
SHARES: dict[str, float] = {"question": 0.6, "keywords": 0.25, "case": 0.15}

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


def draw_forms(number: int, seed: str) -> tuple[str, ...]:
    """Draw the forms of a document's queries; a smaller number gives the first forms of a larger one."""
    return tuple(random.Random(seed).choices(list(SHARES), list(SHARES.values()), k=number))
