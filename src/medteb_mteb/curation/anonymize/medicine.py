"""Diseases, tests and drugs that look like names of persons: 霍奇金淋巴瘤, 贲门炎, 甘利欣."""

from __future__ import annotations

from functools import cache

import regex

from medteb_mteb.curation.anonymize.words import characters, known_words, words
from medteb_mteb.curation.texts.terms import Terms

__all__ = ["is_medical"]

#: Shorter terms are too often part of a name: 白薇, 石松, 玉堂.
_MIN_TERM_LENGTH = 3
#: Last characters of diseases, preparations, substances and food.
_LAST = frozenset(
    "炎疝瘤癌症疹痛疮痔痢疸汤丸散片胶膏糖酶酸碱酯苷酮醇胺醚啶唑菌虫氏式粥羹饺糕饼酱酒茶肉鱼籽类比"
)
#: Adjectives at the end of a phrase that looks like a name (毛孔大); doubled ones may be names (多多).
_ADJECTIVES = "大小多少高低好响阴"

_PREPARATION = (
    r"(?:胶囊|颗粒|[滴蜜水]丸|口服液|糖浆|冲剂|注射液|[粉冻]针|[软乳药]膏|凝胶|栓剂|滴眼液|滴剂|喷雾|洗液|擦剂"
    r"|(?:咀嚼|缓释|控释|肠溶|分散|泡腾|含)片)"
)
_STEM = regex.compile(rf"(?:注射用|.{{1,3}}酸)?(.{{{_MIN_TERM_LENGTH},}}?)(?:{_PREPARATION}|片)")
#: What follows the name of a discoverer, without and with words that may also follow a patient's name.
_EPONYM = (
    r"综合[征症]|淋巴瘤|肉芽肿|病(?![情人房区历程案床重])|试验|实验|现象|效应|反应|体征|骨折|畸形|囊肿|[杆球细真]菌"
    r"|青霉|病毒|螺旋体|立克次|分[期级型类]|评分|量表|问卷|定理|学派|疗法|手术|切口|小体|细胞"
)
_ANY_EPONYM = rf"(?:{_EPONYM}|瘤|[征症氏型])"
#: Characters between a name and the end of a term: no verbs, no function words.
_GAP = r"[\p{Han}--[吃服用喝打买给让送带去来说有是的在做开患得因为查诊疑示及]]{0,5}?"
_AFTER = regex.compile(
    rf"""{_EPONYM}
    |{_GAP}(?:{_PREPARATION}|综合征|增[生多]症|[菌虫]病|淋巴瘤|肉芽肿)
    |[片丸栓](?!子)
    |[眼药][药水膏粉]
    |的?(?:副作用|功效|疗效|药效|用法|用量|说明书|成分|组成)
    |这种?个?药
    |不?(?:适合|能|可以|宜)(?:长期)?[吃服用]
    |(?:还?能|可以|可不可以|能不能|怎么|如何)[吃用服喝]?[吗么]?[？?。，,]
    |[”"’]?(?:可以|能)?治疗?什么|能(?:不能|否)?(?:治|祛|缓解|改善|预防)
    |[)）]?\s?\d[\d.]*\s?(?i:mg|g|[uμ]g|ml|毫克|毫升|微克|克|iu|万)
    |\s?方案|[:：，]?是一种
    |是(?:什么|啥)(?:东西|药|意思|检查|手术)?[呢吗]?(?:[？?。！!]|$)
    |(?:有什么|有啥|的)区别|哪个(?:更?好|效果)""",
    regex.VERSION1 | regex.VERBOSE,
)
_COUNT = (
    r"(?:[\d一二两三四五六七八九十几半多]{1,4}(?:天|片|粒|盒|瓶|箱|支|颗|包|袋|个?月|年|次|周|个?疗程)?的?)?"
)
#: Something that is taken, or a disease that somebody has.
_BEFORE = regex.compile(
    rf"""(?:[吃喝服涂抹喷敷擦](?!饭|苦|亏|务|从|气)[用食]?|(?:能|可以|可否|适合|坚持|一直|在)用|口服|注射|[换改]成|改[用为]
        |加用|配合|使用|药(?:叫做?|名为?|是)|[中西]药[、，,和与及加]?)[了过的着点些完下]?{_COUNT}[“"]?$
    |(?:[吃喝服]|口服|服用)[了过着][\p{{Han}}--[后时的给跟让我他她你您]]{{1,6}}[、，,和与及]\s?$
    |(?:服用|口服|改[成用服]|换成|注射)[\p{{Han}}--[了后时的给跟和让我他她你您]]{{0,4}}$
    |(?:得了|患了|患有|患上|得的是|确诊[为是]|诊断[为是]|查出|疑似|考虑[是为]|什么是|何谓|什么叫)$
    |(?:{_PREPARATION}|[片丸散汤素膏液酮胺啶唑韦酸糖]|他汀|洛尔|普利|沙坦|双胍|中药|西药|维生素\w?)\s?[)）]?\s?[、，,和与及加+（(]\s?$
    |[+＋]\s?$""",
    regex.VERSION1 | regex.VERBOSE,
)
_MAX_BEFORE = 14
#: Characters that are looked at on each side of a candidate, no fewer than the longest term has. The whole
#: text for every candidate would take quadratic time.
_WINDOW = 64
#: A short text in quotes or brackets, from its start, and up to its end.
_OPEN = regex.compile(r"[“\"‘'「『(（\[【]\p{Han}{0,3}$")
_CLOSE = regex.compile(r"\p{Han}{0,3}[”\"’'」』)）\]】]")
_SOUNDS = characters("transliteration") | {"夫"}
_TRANSLITERATED = regex.compile(rf"[{''.join(sorted(_SOUNDS))}·•・．‧-]{{3,}}")
_AFTER_TRANSLITERATED = regex.compile(rf"\p{{Han}}{{0,3}}?{_ANY_EPONYM}")
_ITEM_BEFORE = regex.compile(r"(?<!\p{Han})(\p{Han}{2,4})(?:([、/／])|[，,]\s?)$")
_ITEM_AFTER = regex.compile(r"(?:([、/／])|[，,]\s?)(\p{Han}{2,4})(?!\p{Han})")


@cache
def _terms() -> Terms:
    """Return the terms, and what remains of a preparation without its form: 普适泰片, 磷酸奥司他韦胶囊."""
    stems = (stem[1] for term in words("medical") if (stem := _STEM.fullmatch(term)))
    return Terms((*words("medical"), *words("brands"), *stems))


def is_medical(text: str, start: int, end: int) -> bool:
    """Return True if the candidate `text[start:end]` of a name is, or is part of, a medical term."""
    cut = max(0, start - _WINDOW)
    text, start, end = text[cut : end + _WINDOW], start - cut, end - cut
    name, before = text[start:end], text[max(0, start - _MAX_BEFORE) : start]
    if name[-1] in _LAST or _AFTER.match(text, end) or _BEFORE.search(before):
        return True
    if _OPEN.search(before) and _CLOSE.match(text, end):
        return True
    if name[-1] in _ADJECTIVES and name[-2] != name[-1]:
        return True
    if len(name) == 3 and name[2] == "征" and _SOUNDS.issuperset(name[:2]):
        return True
    if any(
        run.start() <= start and end <= run.end() and _AFTER_TRANSLITERATED.match(text, run.end())
        for run in _TRANSLITERATED.finditer(text)
    ):
        return True
    terms = _terms().every(text)
    for term in terms:
        inside = start <= term.start and term.end <= end and term.term != name
        protects = term.term in words("brands") or (len(term.term) >= _MIN_TERM_LENGTH and not inside)
        if protects and term.start < end and start < term.end:
            return True
    left, right = _ITEM_BEFORE.search(before), _ITEM_AFTER.match(text, end)
    if (left and left[2] and _is_word(left[1])) or (right and right[1] and _is_word(right[2])):
        return True
    return bool(left and right and {left[1], right[2]}.issubset(words("medical")))


def _is_word(item: str) -> bool:
    return item in known_words() or item in words("medical")
