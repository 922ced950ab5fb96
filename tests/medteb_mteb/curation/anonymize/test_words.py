"""The word lists of the recognisers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from medteb_mteb.curation.anonymize import words as module
from medteb_mteb.curation.anonymize.words import alternatives, characters, words

NAMES = sorted(path.stem for path in (Path(module.__file__).parent / "words").glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_a_word_is_matched_in_full_by_its_list(name):
    pattern = re.compile(alternatives(name))
    plain = [word for word in words(name) if re.escape(word) == word]
    assert [word for word in plain if pattern.match(word).group() != word] == []
    assert words(name)
    assert not any("#" in word for word in words(name))


def test_comments_are_left_out_and_words_may_share_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    content = "\ufeff# 一 comment\n甲 乙丙\n\n#乙\n丁\u3000乙\n"
    (tmp_path / "mine-of-a-test.txt").write_text(content.removeprefix("\ufeff"), encoding="utf-8")
    assert words("mine-of-a-test") == ("甲", "乙丙", "丁", "乙")
    assert characters("mine-of-a-test") == {"甲", "乙", "丙", "丁"}
    assert re.fullmatch(alternatives("mine-of-a-test"), "乙丙")
