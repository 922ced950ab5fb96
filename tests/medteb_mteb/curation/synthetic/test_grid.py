"""The constraints of synthetic examples: their draw, and their lengths in both languages."""

from __future__ import annotations

import re

import pytest

from medteb_mteb.curation.synthetic.grid import GRID, Constraints, described, draw, length_of


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
    assert [(n.least, n.most) for n in (length_of(v, "zh") for v in GRID["query_length"])] == [
        (1, 7),
        (8, 16),
        (16, 64),
    ]
    assert [length_of(v, "zh").most for v in GRID["num_words"]] == [80, 160, 320, 480, 640]
    assert length_of("50-100 words", "zh").least == 80
    assert (length_of("less than 5 words", "en").most, length_of("5-10 words", "en").most) == (4, 10)


LENGTHS = [*GRID["query_length"], *GRID["num_words"]]


@pytest.mark.parametrize("value", LENGTHS)
def test_the_words_of_a_prompt_name_the_bounds_that_are_checked(value):
    cell = Constraints("common", value, "clear", value, "college")
    for language in ("zh", "en"):
        length, text = length_of(value, language), described(cell, language)["num_words"]
        named = [int(number) for number in re.findall(r"\d+", text)]
        if text.startswith(("少于", "less than")):
            assert named == [length.most + 1]
        elif text.startswith(("至少", "at least")):
            assert named == [length.least]
        else:
            assert named == sorted({length.least, length.most})


def test_every_value_has_words_of_its_own_in_chinese():
    values = {value for options in GRID.values() for value in options}
    words = set()
    for constraints, _ in draw("task", 405):
        words.update(described(constraints, "zh").values())
        assert described(constraints, "en") == constraints.to_json()
    assert len(words) == len(values)
    assert not any(re.search("[A-Za-z]", word) for word in words)
