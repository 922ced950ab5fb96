"""Control passages: texts whose grade is known beforehand, which show whether a judge graded or obeyed.

A prompt carries one negative and one positive control. The negative one is about something else entirely; if
it is graded better than C, some passage raised it. The positive one is either gold, a passage that is known
to answer the query, or repeats the query; by the scale neither is unrelated to it. If it is graded too low,
some passage lowered the others. LLMs are known to grade a passage that repeats the query too high rather than
too low (Alaofi et al., "LLMs can be fooled into labelling a document as relevant", SIGIR-AP 2024).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ALLOWED_GRADES",
    "CONTROLS",
    "CONTROL_TEXTS",
    "ECHO",
    "ECHOES",
    "GOLD",
    "MISGRADED_REASONS",
    "OFF_TOPIC",
    "kinds_of",
    "misgraded",
    "with_controls",
]

#: Kinds of control passages, whose sum is the `control` of a request: one about something else entirely, one
#: that repeats the query, and one that is known to answer it.
OFF_TOPIC, ECHO, GOLD = 1, 2, 4

#: Passages that no medical query is about.
CONTROLS = (
    "足球比赛每队上场十一人，上下半场各四十五分钟，中场休息不超过十五分钟。",
    "这趟列车由西向东行驶，沿途停靠七站，餐车设在九号车厢，请旅客按座位号就座。",
    "混凝土浇筑后应覆盖草帘并洒水，拆除模板的时间由强度试块的结果决定。",
    "吉他的标准定弦从六弦到一弦依次为E、A、D、G、B、E，换弦后要反复校音。",
    "二手自行车交易前，请核对车架号，检查链条、刹车和轮胎的磨损情况。",
    "公司年会定于周五下午在三楼会议室举行，请各部门提前报送节目单。",
    "望远镜的放大倍数等于物镜焦距除以目镜焦距，观星时宜选择无月的夜晚。",
    "打印机出现卡纸时，先关闭电源，打开后盖，沿出纸方向轻轻抽出纸张。",
    "围棋棋盘纵横各十九道，共三百六十一个交叉点，黑方先行。",
    "这款键盘支持三台设备切换，长按功能键三秒进入配对状态，指示灯会闪烁。",
    "长江全长六千三百余公里，流经十一个省级行政区，最后注入东海。",
    "水彩画通常从浅色开始铺陈，等底层干透以后再叠加较深的颜色。",
)

#: Passages that repeat the query.
ECHOES = ("有人提问：{query}", "{query}——下面说的就是这个问题。", "今天来谈一个常见的问题：{query}")

#: Queries that no medical passage answers, about other things than `CONTROLS`.
CONTROL_TEXTS = ("电脑怎样设置静态IP地址", "海运集装箱的标准尺寸是多少", "火山喷发分为哪几种类型")

#: Grades that a control passage may be given, by kind.
ALLOWED_GRADES: Mapping[int, str] = {OFF_TOPIC: "CD", ECHO: "SABC", GOLD: "SAB"}
#: Reasons for rejecting an answer, by kind of the control passage that was misgraded.
MISGRADED_REASONS: Mapping[int, str] = {OFF_TOPIC: "control", ECHO: "control-low", GOLD: "control-low"}


def kinds_of(control: int) -> tuple[int, ...]:
    """Return the kinds of control passages of a request."""
    return tuple(kind for kind in (OFF_TOPIC, ECHO, GOLD) if control & kind)


def with_controls(
    control: int,
    identity: bytes,
    texts: Sequence[str],
    *,
    query: str,
    gold: Sequence[str],
    controls: Sequence[str],
    echoes: Sequence[str],
) -> tuple[list[str], tuple[int, ...], dict[int, int]]:
    """Return the passages of a prompt, including its control passages.

    Args:
        control: Sum of the kinds of control passages.
        identity: Digest of the request (16 bytes), which seeds the choice and places of control passages.
        texts: Passages to grade, in the order of the request.
        query: The query.
        gold: Passages that are known to answer the query, none of them in `texts`.
        controls: Negative control passages.
        echoes: Positive control passages, with `{query}`.

    Returns:
        The passages, the numbers of the request's own passages, and the kind of control passage by number.
    """
    draw = random.Random(identity)
    chosen = kinds_of(control)
    count = len(texts) + len(chosen)
    kinds = dict(zip(draw.sample(range(count), len(chosen)), chosen, strict=True))
    numbers = tuple(number for number in range(count) if number not in kinds)
    shown = [""] * count
    for number, text in zip(numbers, texts, strict=True):
        shown[number] = text
    # An echo replaces a gold passage that no longer exists.
    repeated = [echo.replace("{query}", query) for echo in (echoes or ECHOES)]
    choice = {OFF_TOPIC: controls, ECHO: repeated, GOLD: gold or repeated}
    for number, kind in sorted(kinds.items(), key=lambda item: item[1]):
        shown[number] = draw.choice(choice[kind])
    return shown, numbers, kinds


def misgraded(grades: Mapping[int, str], kinds: Mapping[int, int]) -> str:
    """Return why an answer is rejected because of its control passages; empty if it is not.

    Args:
        grades: Grade by number.
        kinds: Kind of control passage by number.
    """
    for number, kind in sorted(kinds.items(), key=lambda item: item[1]):
        grade = grades.get(number)
        if grade is None:
            return "control-missing"
        if grade not in ALLOWED_GRADES[kind]:
            return MISGRADED_REASONS[kind]
    return ""
