"""Forms of synthetic queries: their weights, their draw, and how a query is recognised."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.synthetic.forms import DEFAULT_FORMS, FORMS, draw_forms, form_problem, parse_forms


def test_forms_are_drawn_by_weight_and_a_smaller_draw_begins_a_larger_one():
    assert parse_forms(None) == DEFAULT_FORMS
    assert parse_forms(["case=2", "keywords"]) == {"case": 2.0, "keywords": 1.0}
    drawn = draw_forms(parse_forms(["question=3", "keywords=1"]), 4000, "seed")
    assert drawn.count("question") / 4000 == pytest.approx(0.75, abs=0.03)
    assert "case" not in drawn
    assert drawn[:7] == draw_forms({"keywords": 1.0, "question": 3.0}, 7, "seed")


@pytest.mark.parametrize("entry", ["essay=1", "=1", "Case=1", "case=x", "case=-1", "case=nan", "case=inf"])
def test_an_entry_that_is_no_form_with_a_weight_is_named(entry):
    with pytest.raises(BuildError, match=rf"FORM=WEIGHT, with question, keywords, case .*got '{entry}'"):
        parse_forms(["question=1", entry])


def test_forms_without_weight_are_left_out_but_one_must_remain():
    assert parse_forms(["case=0", "question"]) == {"question": 1.0}
    with pytest.raises(BuildError, match="No form of a query has a weight above 0"):
        parse_forms(["case=0", "question=0"])


def test_the_defaults_cannot_be_changed_by_a_caller():
    parse_forms([])["case"] = 9.0
    assert parse_forms(None) == DEFAULT_FORMS
    assert sum(DEFAULT_FORMS.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "language", "asks"),
    [
        ("痛风怎么办", "zh", True),
        ("痛风能喝酒吗", "zh", True),
        ("痛风 急性期 用药", "zh", False),
        ("吗啡 用量", "zh", False),
        ("gout?", "en", True),
        ("Is gout treated", "en", True),
        ("isotretinoin dose", "en", False),
        ("gout how treated", "en", False),
    ],
)
def test_a_text_either_asks_or_is_keywords(text, language, asks):
    assert form_problem(text, "question", language) == ("" if asks else "not-a-question")
    assert form_problem(text, "case", language) == ("" if asks else "not-a-question")
    assert form_problem(text, "keywords", language) == ("not-keywords" if asks else "")


@pytest.mark.parametrize(
    ("text", "language", "reason"),
    [
        ("痛风。休息", "zh", "not-keywords"),
        ("gout. rest", "en", "not-keywords"),
        ("colchicine 0.5 mg", "en", ""),
        ("秋水仙碱 0.5mg", "zh", ""),
    ],
)
def test_keywords_are_no_sentence(text, language, reason):
    assert form_problem(text, "keywords", language) == reason


def test_texts_as_the_prompts_ask_for_pass():
    """Bounds are wider than what the prompts ask for."""
    lengths = {"question": (8, 30), "keywords": (4, 15), "case": (30, 80)}
    for name, (least, most) in lengths.items():
        low, high = FORMS[name].bounds["zh"]
        assert low < least
        assert most < high
        assert f"{least}到{most}个字" in FORMS[name].described["zh"]
