"""Questions as hurried users type them, for the robustness table of `chinese.py`.

Needs opencc and pypinyin.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING

from opencc import OpenCC
from pypinyin import lazy_pinyin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: One Chinese character in so many is wrong or missing, at least one of a question.
ONE_IN = 10

#: Terms that people with some English write in English.
ENGLISH = {
    "高血压": "hypertension", "糖尿病": "diabetes", "冠心病": "CHD", "心电图": "ECG", "核磁共振": "MRI",
    "感冒": "cold", "流感": "flu", "发烧": "fever", "咳嗽": "cough", "肺炎": "pneumonia",
    "哮喘": "asthma", "过敏": "allergy", "湿疹": "eczema", "头痛": "headache", "抑郁症": "depression",
    "失眠": "insomnia", "怀孕": "pregnancy", "月经": "period", "流产": "miscarriage", "胃炎": "gastritis",
    "便秘": "constipation", "腹泻": "diarrhea", "乙肝": "HBV", "肿瘤": "tumor", "化疗": "chemo",
    "手术": "surgery", "疫苗": "vaccine", "抗生素": "antibiotics", "阿司匹林": "aspirin", "医生": "doctor",
}  # fmt: skip


def changes(questions: Iterable[str]) -> dict[str, Callable[[str], str]]:
    """Return functions that change a question, by name; the same question is always changed alike.

    Args:
        questions: Their characters, as often as they occur, replace those of the same pinyin.
    """
    counts = Counter(character for text in questions for character in text if _chinese(character))
    sounds: dict[str, list[str]] = {}
    for character in sorted(counts):
        sounds.setdefault(lazy_pinyin(character)[0], []).append(character)

    def typos(text: str) -> str:
        draw = random.Random(text)
        characters = list(text)
        for place in _places(text, draw):
            others = [one for one in sounds.get(lazy_pinyin(text[place])[0], []) if one != text[place]]
            if others:
                [characters[place]] = draw.choices(others, [counts[one] for one in others])
        return "".join(characters)

    def dropped(text: str) -> str:
        gone = set(_places(text, random.Random(text)))
        return "".join(character for place, character in enumerate(text) if place not in gone)

    return {
        "clean": str,
        "typos": typos,
        "characters dropped": dropped,
        "traditional": OpenCC("s2tw").convert,
        "full width": lambda text: re.sub(r"[!-~]", lambda found: chr(ord(found[0]) + 0xFEE0), text),
        "English terms": lambda text: re.sub("|".join(ENGLISH), lambda found: ENGLISH[found[0]], text),
    }


def _chinese(character: str) -> bool:
    return "一" <= character <= "鿿"


def _places(text: str, draw: random.Random) -> list[int]:
    places = [place for place, character in enumerate(text) if _chinese(character)]
    return draw.sample(places, min(len(places), max(1, len(places) // ONE_IN)))
