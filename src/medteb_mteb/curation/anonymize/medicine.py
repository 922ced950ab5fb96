"""Diseases, tests and drugs that look like names of persons: 霍奇金淋巴瘤, 贲门炎, 甘利欣."""

from __future__ import annotations

from functools import cache

import regex

from medteb_mteb.curation.anonymize.words import characters, words
from medteb_mteb.curation.texts.terms import Terms

__all__ = ["is_medical"]

#: Shorter terms are too often part of a name: 白薇, 石松, 玉堂.
_MIN_TERM_LENGTH = 3
#: Last characters of diseases, preparations and substances.
_LAST = frozenset("炎疝瘤癌症疹痛疮痔痢疸汤丸散片胶膏糖酶酸碱酯苷酮醇胺醚啶唑菌虫氏式粥羹饺糕饼酱酒茶肉鱼")
#: What follows the name of a discoverer.
_EPONYM = (
    r"(?:综合[征症]|淋巴瘤|肉芽肿|瘤|[征症氏型]|病(?![情人房区历程案床重])|试验|实验|现象|效应|反应|体征|骨折|畸形"
    r"|囊肿|杆菌|球菌|青霉|[细真]菌|病毒|螺旋体|立克次|分[期级型类]|评分|量表|问卷|定理|学派|疗法|手术|切口|小体|细胞)"
)
_PREPARATION = (
    r"(?:胶囊|颗粒|[滴蜜水]丸|口服液|糖浆|冲剂|注射液|[粉冻]针|[软乳药]膏|凝胶|栓剂|滴眼液|滴剂|喷雾|洗液|擦剂"
    r"|(?:咀嚼|缓释|控释|肠溶|分散|泡腾|含)片)"
)
#: Characters between a name and a term that it is part of: no verbs, no function words.
_GAP = r"[\p{Han}--[吃服用喝打买给让送带去来说有是的在做开患得因为查诊疑示及]]{0,5}?"
_AFTER = regex.compile(
    rf"{_EPONYM.replace('|瘤|[征症氏型]|', '|')}|{_GAP}(?:{_PREPARATION}|综合征|增[生多]症|[菌虫]病|淋巴瘤|肉芽肿)"
    r"|[片丸栓](?!子)|的?(?:副作用|功效|疗效|药效|用法|用量|说明书|成分|组成)"
    r"|是(?:什么|啥)(?:东西|药|意思|检查|手术)?[呢吗]?(?:[？?。！!]|$)|(?:有什么|有啥|的)区别|哪个(?:更?好|效果)"
    r"|(?:还?能|可以|可不可以|能不能|怎么|如何)[吃用服喝]?[吗么]?[？?。，,]|[”\"’]?(?:可以|能)?治疗?什么",
    regex.VERSION1,
)
_SOUNDS = characters("transliteration")
_TRANSLITERATED = regex.compile(r"[CHARS]{3,}(?:-[CHARS]{2,})?".replace("CHARS", "".join(sorted(_SOUNDS))))
_AFTER_TRANSLITERATED = regex.compile(rf"\p{{Han}}{{0,3}}?{_EPONYM}")
_COUNT = r"(?:[\d一二两三四五六七八九十几半多]{1,4}(?:天|片|粒|盒|瓶|箱|支|颗|包|袋|个?月|年|次|周|个?疗程)?的?)?"
_TAKEN = regex.compile(
    rf"(?:[吃喝服涂抹](?!饭|苦|亏|务|从|气)用?|口服|注射|换成|改成|改[用为]|加用|配合|使用|药(?:叫做?|名为?|是)|[中西]药[、，,和与及加]?)"
    rf"[了过的着点些完下]?{_COUNT}[“\"]?$"
    r"|(?:服用|口服|改[成用服]|换成|注射)[\p{Han}--[了后时的给跟和让我他她你您]]{0,4}$"
    r"|(?:得了|患了|患有|患上|得的是|确诊[为是]|诊断[为是]|查出|疑似|考虑[是为]|什么是|何谓|什么叫)$",
    regex.VERSION1,
)
_DRUG = rf"(?:{_PREPARATION}|[片丸散汤素膏液酮胺啶唑韦酸糖]|他汀|洛尔|普利|沙坦|双胍|中药|西药|维生素\w?)"
_LISTED_BEFORE = regex.compile(rf"{_DRUG}\s?(?:[)）]\s?)?[、，,和与及加+]\s?$")
_ITEM_BEFORE, _ITEM_AFTER = regex.compile(r"[、，,和与及]\s?$"), regex.compile(r"\s?[、，,和与及]\s?")
_QUOTED_BEFORE, _QUOTED_AFTER = "“\"‘「『", "”\"’」』"


@cache
def _terms() -> Terms:
    return Terms(words("medical"))


def is_medical(text: str, start: int, end: int) -> bool:
    """Return True if the candidate of a name in `text[start:end]` is, or is part of, a medical term."""
    if text[end - 1] == "征" and end - start > 2 and set(text[start : end - 1]) <= _SOUNDS:
        return True
    if text[end - 1] in _LAST or _AFTER.match(text, end) or _TAKEN.search(text[max(0, start - 12) : start]):
        return True
    if text[start - 1 : start] in _QUOTED_BEFORE and start and text[end : end + 1] in _QUOTED_AFTER and end < len(text):
        return True
    if _LISTED_BEFORE.search(text[max(0, start - 12) : start]):
        return True
    for run in _TRANSLITERATED.finditer(text):
        inside = run.start() <= start and end <= run.end()
        if inside and _AFTER_TRANSLITERATED.match(text, run.end()):
            return True
    found = [(one.start, one.end) for one in _terms().every(text)]
    if any(
        a < end and start < b and not (start <= a and b <= end and (a, b) != (start, end))
        for a, b in found
        if b - a >= _MIN_TERM_LENGTH
    ):
        return True
    before, after = _ITEM_BEFORE.search(text[:start]), _ITEM_AFTER.match(text, end)
    return bool(
        before
        and after
        and any(b == before.start() for _, b in found)
        and any(a == after.end() for a, _ in found)
    )
