"""The two languages of synthetic texts: the length of a text in each, and the check of its language."""

from __future__ import annotations

import re
from typing import Literal, get_args

from medteb_mteb.curation.files.records import BuildError

__all__ = ["LANGUAGES", "UNITS", "Language", "checked", "size", "written_in"]

Language = Literal["zh", "en"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
#: Unit of the length of a text.
UNITS: dict[Language, str] = {"zh": "characters", "en": "words"}

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]")
_LATIN = re.compile(r"[A-Za-z]")
#: Minimum share of Chinese characters in a Chinese text, which may name drugs or genes in Latin letters; an
#: English text contains no Chinese characters.
_MIN_CHINESE_SHARE = 0.2


def checked(language: str) -> Language:
    """Return a language by its name.

    Raises:
        BuildError: The language does not exist.
    """
    for known in LANGUAGES:
        if language == known:
            return known
    raise BuildError(f"Texts are written in {' or '.join(LANGUAGES)}; got the language {language!r}.")


def size(text: str, language: Language) -> int:
    """Return the length of a text: characters without blanks in Chinese, words in English."""
    return len("".join(text.split())) if language == "zh" else len(text.split())


def written_in(text: str, language: Language) -> bool:
    """Return True if a text is in a language: Chinese has mostly Chinese characters, English has none."""
    chinese, latin = len(_HAN.findall(text)), len(_LATIN.findall(text))
    if language == "zh":
        return bool(chinese) and chinese >= _MIN_CHINESE_SHARE * (chinese + latin)
    return bool(latin) and not chinese
