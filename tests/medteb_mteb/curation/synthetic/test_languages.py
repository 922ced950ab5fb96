"""Lengths of Chinese and English texts, and the check of a text's language."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.synthetic.languages import LANGUAGES, checked, size, written_in


def test_chinese_is_counted_in_characters_and_english_in_words():
    assert (size("痛风 用药", "zh"), size("gout  drugs now", "en")) == (4, 3)
    assert size("　痛风\n用 药\t", "zh") == 4
    assert (size(" \n", "zh"), size(" \n", "en")) == (0, 0)


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("EGFR突变的非小细胞肺癌", ["zh"]),
        ("痛风", ["zh"]),
        ("a long English sentence with 药", []),  # too little Chinese, and not only English
        ("gout 药", ["zh"]),  # one of five letters
        ("gout 1.5 mg", ["en"]),
        ("𠀀𠀁", ["zh"]),  # beyond the basic plane
        ("120/80", []),
        ("", []),
    ],
)
def test_a_text_is_in_the_language_of_its_letters(text, languages):
    assert [language for language in LANGUAGES if written_in(text, language)] == languages


def test_an_unknown_language_is_named():
    assert [checked(language) for language in LANGUAGES] == ["zh", "en"]
    for name in ("de", "ZH", ""):
        with pytest.raises(BuildError, match=f"zh or en; got the language '{name}'"):
            checked(name)
