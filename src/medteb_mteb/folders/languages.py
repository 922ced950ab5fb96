"""Languages of a task in mteb's form (ISO 639-3 and ISO 15924), from the codes in a folder's card."""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mteb.languages import check_language_code

from medteb_mteb.folders.problems import FolderError

if TYPE_CHECKING:
    from medteb_mteb.folders.layout import Layout

__all__ = ["UNKNOWN_LANGUAGE", "eval_languages"]

UNKNOWN_LANGUAGE = "und-Zyyy"
#: Codes whose usual meaning mteb's lists do not give: they name macrolanguages, such as `zho` and `ara`.
_LANGUAGES = {
    "zh": "cmn-Hans", "zho": "cmn-Hans", "cmn": "cmn-Hans", "zh-cn": "cmn-Hans", "zh-hans": "cmn-Hans",
    "zh-tw": "cmn-Hant", "zh-hk": "cmn-Hant", "zh-hant": "cmn-Hant",
    "en": "eng-Latn", "eng": "eng-Latn", "de": "deu-Latn",
    "fr": "fra-Latn", "es": "spa-Latn", "pt": "por-Latn", "it": "ita-Latn", "ja": "jpn-Jpan",
    "ko": "kor-Hang", "ru": "rus-Cyrl", "ar": "arb-Arab", "vi": "vie-Latn",
}  # fmt: skip


def eval_languages(layout: Layout) -> list[str]:
    """Return the languages of a folder's task; `und-Zyyy` if it states none.

    A value of the card's `language` that names no language, such as `multilingual`, becomes `und-Zyyy`: that
    key belongs to the Hub, where any value is allowed.

    Raises:
        FolderError: The task's own settings name an unknown language.
    """
    settings = layout.settings
    codes = []
    for stated in settings.languages:
        code = _mteb_code(stated)
        if code is None and not settings.hub_languages:
            message = f"unknown language {stated!r}; write it like 'cmn-Hans' (ISO 639-3, ISO 15924)"
            raise FolderError(layout.path, [message])
        codes.append(code or UNKNOWN_LANGUAGE)
    return list(dict.fromkeys(codes)) or [UNKNOWN_LANGUAGE]


def _mteb_code(stated: str) -> str | None:
    """Return a code such as `zh_CN`, `en-US`, `pl` or `pol` in mteb's form; None if it is unknown."""
    if _is_valid(stated):
        return stated
    code = stated.lower().replace("_", "-")
    language, _, rest = code.partition("-")
    if code in _LANGUAGES:
        return _LANGUAGES[code]
    known = _LANGUAGES.get(language, "").partition("-")[0] or _list("iso_639_1_to_3").get(language, language)
    usual = _LANGUAGES.get(language, "").partition("-")[2] or _list("iso_639_3_to_default_script").get(known)
    candidates = [f"{known}-{rest.partition('-')[0].title()}", f"{known}-{usual}"]
    return next((candidate for candidate in candidates if _is_valid(candidate)), None)


def _is_valid(code: str) -> bool:
    try:
        check_language_code(code)
    except ValueError:
        return False
    return "-" in code


@functools.cache
def _list(name: str) -> dict[str, Any]:
    """Return one of mteb's lists of codes; empty if its version has none of that name."""
    file = files("mteb.languages") / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
