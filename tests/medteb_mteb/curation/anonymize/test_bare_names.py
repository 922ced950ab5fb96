from __future__ import annotations

import pytest

from medteb_mteb.curation.anonymize.find import Finder


def named(text, *, strict=False):
    return {text[span.start : span.end] for span in Finder(strict=strict)(text) if span.kind == "NAME"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("陈晓燕血糖控制不好", {"陈晓燕"}),
        ("周卫东、何秀兰夫妇今晨一同来院。", {"周卫东", "何秀兰"}),
        ("葛晓军，用座机来电。", {"葛晓军"}),
        ("李　想，2018年2月6日生", {"李　想"}),
        ("陳嘉儀，來院健檢", {"陳嘉儀"}),
    ],
)
def test_names_without_a_label_are_found(text, names):
    assert named(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "高血压和白细胞升高，方便时复查",
        "黄连素、陈皮、何首乌可以同服吗",
        "吉兰-巴雷综合征，霍夫曼征阴性",
        "益玛欣、诺和灵和替诺福韦怎么保存",
        "母亲患病者应定期查甲功",
        # a dictionary, also inside compounds
        "请问霍奇金淋巴瘤是什么？",
        # discoverers, in transliteration
        "医生说是韦格纳肉芽肿，严重吗",
        "吉尔伯特综合征和马尔尼菲青霉病",
        # endings, places of drugs, neighbours in a list
        "反流性食管炎，贲门炎",
        "因为没碰触过水苏糖，所以想问问水苏糖",
        "当归，川芎，熟地，杭芍，茯苓",
        "左叶前后径56mm",
        # in brackets, with a dose, in a list, in an idiom, in a wish
        "奥沙利铂（艾恒）150mg静滴",
        "多吃芋头、糯米、汤圆",
        "如果希望一劳永逸的话",
        # brands in lists, after a preposition or alone; a number of courses; sites in titles
        "目前常用的有，贺力维，恩替等",
        "这种软膏对白斑灵的耐受较好",
        "化疗3程顺利",
        "艾叶泡脚的好处-丁香园",
        # what is only probable: misspellings, herbs and words in running text
        "可以吃一点儿薄公英根泡水的",
        "咳嗽是单声咳还是连声咳",
    ],
)
def test_words_that_begin_with_a_surname_stay(text):
    assert named(text) == set()


@pytest.mark.parametrize(
    "text", ["陈晓燕最近胃痛，吃了甘利欣", "我妈妈陈晓燕，霍奇金淋巴瘤三年", "给陈晓燕开的白虎汤"]
)
def test_names_beside_medical_terms_are_found(text):
    assert named(text) == {"陈晓燕"}


def test_a_name_without_a_personal_context_counts_only_beside_another_identifier():
    text = "今日复查血钾，邬晓斌，三点采血"
    assert named(text) == set()
    assert named(f"{text}，电话13812345678") == {"邬晓斌"}
    assert "邬晓斌" in named(text, strict=True)
    _, body = Finder().together(["住院号：20210034567", text])
    assert [span.kind for span in body] == ["NAME"]


@pytest.mark.parametrize(
    "text",
    [
        "无皮肤红肿、皮温高",
        "胆总管切开取石+t管引流",
        "采取治疗方案（如索米痛、普适泰、散利痛等）",
        "磷酸奥司他韦一天两回",
    ],
)
def test_medical_words_stay_also_beside_an_identifier(text):
    assert named(f"{text}，住院号20210034567") == set()


def test_a_surname_before_a_title_says_nothing_about_other_words():
    text = "今日复查血钾，邬晓斌，三点采血"
    assert named(f"谢谢王医生。{text}") == {"王"}
    assert named(f"谢谢王医生。{text}，电话13812345678") == {"王", "邬晓斌"}


@pytest.mark.parametrize("label", ["商品名称：", "【药品名称】", "化学名 ", "（通用名：“"])
def test_no_name_begins_after_the_label_of_a_product(label):
    assert named(f"{label}陈晓燕。") == set()
    assert named(f"{label}片剂。患者陈晓燕血糖不好") == {"陈晓燕"}
    assert named("账户名称：陈晓燕。") == {"陈晓燕"}


def test_strict_mode_finds_more_and_nothing_less():
    texts = ["隔壁鲍大勇开车", "9床常青体温38.6℃", "昨天志强又来复查", "患者王秀兰头疼"]
    for text in texts:
        assert named(text) <= named(text, strict=True)
    assert sum(len(named(text, strict=True)) > len(named(text)) for text in texts) >= 1
