"""The constraints of synthetic examples: their draw, and their lengths in both languages."""

from __future__ import annotations

import re

import pytest

from medteb_mteb.curation.synthetic.grid import GRID, LENGTHS, Constraints, described, draw


def test_every_cell_of_the_grid_comes_once_before_one_comes_twice():
    cells = len(GRID["query_type"]) * 3 * 3 * 5 * 3
    drawn = draw("给定药名，检索说明书。", cells + 10)
    assert len({constraints for constraints, _ in drawn[:cells]}) == cells == 405
    assert {variant for _, variant in drawn[:cells]} == {"0"}
    assert len(set(drawn)) == cells + 10
    assert draw("给定药名，检索说明书。", 10) == drawn[:10]
    assert draw("another", 10) != drawn[:10]
    values = {name: {getattr(c, name) for c, _ in drawn} for name in GRID}
    assert values == {name: set(options) for name, options in GRID.items()}


def test_the_grid_is_in_characters_for_chinese_and_words_for_english():
    for value, words in LENGTHS["en"].items():
        short = value.startswith("less than")
        for number, characters in zip(words, LENGTHS["zh"][value], strict=True):
            assert characters == (round((number + short) * 1.6) - short if number > 1 else 1)


@pytest.mark.parametrize("value", [*GRID["query_length"], *GRID["num_words"]])
def test_the_words_of_a_prompt_name_the_bounds_that_are_checked(value):
    cell = Constraints("common", value, "clear", value, "college")
    for language in ("zh", "en"):
        (least, most), text = LENGTHS[language][value], described(cell, language)["num_words"]
        named = [int(number) for number in re.findall(r"\d+", text)]
        if text.startswith(("少于", "less than")):
            assert named == [most + 1]
        elif text.startswith(("至少", "at least")):
            assert named == [least]
        else:
            assert named == sorted({least, most})


def test_every_value_has_words_of_its_own_in_chinese():
    values = {value for options in GRID.values() for value in options}
    words = set()
    for constraints, _ in draw("task", 405):
        words.update(described(constraints, "zh").values())
        assert described(constraints, "en") == constraints._asdict()
    assert len(words) == len(values)
    assert not any(re.search("[A-Za-z]", word) for word in words)
