"""Which texts are questions, which say nothing besides their term, and how long a rewrite may be."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.sts.question import bounds, is_question, says_little


@pytest.mark.parametrize(
    "text",
    [
        "能吃海鲜吗",
        "怎么办？",
        "严不严重",
        "要不要手术",
        "是否遗传",
        "吃啥好",
        "多久能好",
        "血压正常值几岁算起？",
    ],
)
def test_questions_are_recognised(text):
    assert is_question(text)


@pytest.mark.parametrize(
    "text", ["应当低盐饮食。", "没什么大碍", "不怎么疼", "高血压的症状", "第一行？\n第二行？"]
)
def test_other_sentences_are_not_questions(text):
    assert not is_question(text)


def test_a_question_mark_counts_inside_closing_quotation_marks_and_brackets():
    assert is_question("他说“高血压遗传？”")
    assert is_question("（高血压遗传?） ")
    assert not is_question("“高血压？”是标题")


@pytest.mark.parametrize(
    ("text", "little"),
    [
        ("高血压", True),
        ("高血压？！", True),  # punctuation is no letter
        ("高血压吗？", True),
        ("高血压怎治", False),
        ("ＣＴ 怎么做", False),
    ],
)
def test_a_text_of_its_term_and_less_than_two_letters_says_little(text, little):
    assert says_little(text, "ct" if "Ｃ" in text else "高血压") == little


def test_bounds_include_what_is_just_thirty_per_cent():
    assert bounds("一二三四五六七八九十", 0.3) == (7, 13)
    assert bounds("一二三四五六七", 0.3) == (5, 9)
    assert bounds("一", 0.3) == (1, 1)
    assert bounds("  一二三四五六七八九十\n", 0.3) == (7, 13)
