from __future__ import annotations

import time

import pytest

from medteb_mteb.curation.anonymize.find import Finder


@pytest.fixture(scope="module")
def finder():
    return Finder()


def test_a_labelled_value_is_found_again_without_its_label(finder):
    title, text = finder.together(
        ["由作田的CT复查", "姓名：由作田，住院号20210034567。今日20210034567号由作田复查。"]
    )
    assert [span.kind for span in title] == ["NAME"]
    assert [span.kind for span in text] == ["NAME", "RECORD_NUMBER", "RECORD_NUMBER", "NAME"]
    assert finder("由作田的CT复查") == []


@pytest.mark.thorough(but=["姓名", "医院"])
@pytest.mark.parametrize(
    "piece",
    ["省市区路号", "1", "高血压患者张医生", "姓名", "微信", "a@", "医院", "1-", "Patient Ab Cd ", "和", "王"],
)
def test_long_texts_take_time_in_proportion(finder, piece):
    text = piece * (20_000 // len(piece))
    start = time.process_time()
    finder(text)
    assert time.process_time() - start < 6


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("住院号：２０２３００１２３４", "２０２３００１２３４", "RECORD_NUMBER"),
        ("邮箱ｚｈａｎｇ＠１６３．ｃｏｍ", "ｚｈａｎｇ＠１６３．ｃｏｍ", "EMAIL"),
        ("浙Ａ１２３４５送入", "浙Ａ１２３４５", "PLATE"),
        ("微信ｌｉｘｍ＿１９９２", "ｌｉｘｍ＿１９９２", "ACCOUNT"),
    ],
)
def test_full_width_letters_and_digits_are_read(text, value, kind):
    assert [(text[span.start : span.end], span.kind) for span in Finder()(text)] == [(value, kind)]


def test_a_number_that_is_known_is_not_looked_for_inside_longer_ones():
    text = "住院号：100523，疫苗批号1005231，白蛋白批号A100523，100523号患者"
    assert [span.start for span in Finder()(text)] == [4, text.index("，100523号") + 1]


@pytest.mark.parametrize("label", ["患者", "患儿", "宝宝", "医生", "麻醉："])
@pytest.mark.parametrize(
    "words",
    [
        *("麻木", "苏醒", "青紫", "陈述", "毛发稀疏", "易激惹", "易疲劳", "尚平稳"),
        *("张力高", "齐全", "艾灸", "全麻", "平卧位", "黄染", "许可", "干燥"),
    ],
)
def test_findings_and_states_are_not_names(label, words):
    for mark in "，。":
        assert Finder()(f"{label}{words}{mark}于今日") == []


@pytest.mark.parametrize(
    "text",
    [
        "临床试验登记号ChiCTR2300071382",
        "江苏省人民医院3号楼5楼检验科",
        "3张床上有血迹",
        "帮孩子挂号，替老人取药，由患者本人签字",
        "高血压（3级），肺炎（男，3岁）",
        "麻醉满意，安返病房",
        "大家父母都有高血压",
        "沃尔夫·帕金森·怀特综合征",
        "拟行达·芬奇机器人辅助手术",
        "内科·外科·儿科均可挂号",
        # forms without a name
        "病史陈述者：患者本人，可靠。",
        "签名：家属已签",
        "联系人：不详",
        "父亲：体健，母亲：高血压",
    ],
)
def test_text_without_identifiers_stays(finder, text):
    assert finder(text) == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"patient_name": "王秀兰", "病历号": "20210034567"}', ["王秀兰", "20210034567"]),
        ("王秀兰（女，54岁）来院", ["王秀兰"]),
        ("我叫阿依古丽，孕20周", ["阿依古丽"]),
        ("去年住37床的潘秀英，胆结石", ["37床", "潘秀英"]),
        ("6号床上机困难", ["6号床"]),
        ("我给蒋雨桐挂号", ["蒋雨桐"]),
        ("已联系游志强本人", ["游志强"]),
        ("电话13812345678，王秀兰。", ["13812345678", "王秀兰"]),
        ("患者王秀兰和李建国，", ["王秀兰", "李建国"]),
        ("户籍地：安徽省阜阳市颍上县", ["安徽省阜阳市颍上县"]),
        ("姓名：苏醒", ["苏醒"]),
        ("村医带着阿孜古丽·卡德尔和两个娃来打疫苗", ["阿孜古丽·卡德尔"]),
        ("患者阿卜杜拉・买买提因头痛入院", ["阿卜杜拉・买买提"]),
        ("约翰·史密斯病情平稳", ["约翰·史密斯"]),
    ],
)
def test_identifiers_in_natural_wording_are_found(text, values):
    assert [text[span.start : span.end] for span in Finder()(text)] == values
