"""Recognisers of places and times: addresses, hospital beds, dates of birth and other dates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import regex

from medteb_mteb.curation.anonymize.recogniser import IdentifierPattern, Recogniser, of_a_thing
from medteb_mteb.curation.anonymize.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Address", "AnyDate", "Bed", "BirthDate", "EnglishAddress"]

#: Characters that are rare inside the name of a place but common before or after one.
NOT_IN_PLACE_NAMES = (
    "的了是在有我你您他她它这那哪就都被很不也还吗呢啊吧么什因此其并且或但而与及对把让给从向跟等着过说问"
    "做看吃打去到住至于自由为系患者病入寄送租查例以请址岁诉后前"
)
_CHAR = rf"[\p{{Han}}--[{NOT_IN_PLACE_NAMES}]]"
#: The same inside an address, where some of these characters may be part of a name: 莲前西路, 盈都大厦.
_NOT_IN_LATER_PARTS = (
    "的了是在有我你您他她它这那就被很不也还吗呢吧么什因此其且或但而及把让给从向跟着过说问做看吃患病址岁诉"
)
_ENDS = "省市区县旗镇乡村路街道巷里庄屯苑"
_PROVINCES = dict(zip(words("provinces")[::2], words("provinces")[1::2], strict=True))
_PREFECTURES = words("prefectures")
_NO_OTHER_PLACE = rf"(?![东南西北中一二三四五六七八九十]{{0,2}}大?[{_ENDS}])"
_NUMBER = r"[甲乙丙丁]?\d{1,5}(?:[-—]\d{1,4}){0,2}\s?"

#: One part of an address; the matching group is its kind. CHAR is replaced by a character of a name.
_PART = rf"""\s?(?:
    (?P<province>{"|".join(map("".join, _PROVINCES.items()))}|(?:{"|".join(_PROVINCES)}){_NO_OTHER_PLACE})
    |(?P<city>(?:{"|".join(_PREFECTURES)})(?:市|地区|盟|\p{{Han}}{{1,6}}族?自治州|州(?!市)|{_NO_OTHER_PLACE}))
    |(?P<room>[东西南北]?{_NUMBER}(?:号楼|栋|幢|座|单元|楼|层|室|房|门|户|排|[FＦ](?![A-Za-z\d]))|[A-Z]\s?[座栋幢]\s?)
    |(?P<number>{_NUMBER}(?:号院|号|支弄|弄|巷|院)(?!线|管|针|方|台|机|床|切口|引流|病[室房床区]|诊[室台]|药|片|窗))
    |(?P<group>[一二三四五六七八九十\d]{{1,3}}\s?(?:组|社|队|屯|村)(?!CHAR*医院))
    |CHAR{{1,9}}?(?:
        (?P<town>镇|乡|街道(?:办事处)?|苏木|农场|林场)(?!卫生院|医院|中心医院|[{_ENDS}])
        |(?P<village>(?:村民|居民)?委员会|居委会|村委会|社区(?!卫生|服务|医院|诊所|医疗)|大队|村|屯|庄|寨)(?![{_ENDS}委民])
        |(?P<district>自治县|自治旗|新区|开发区|高新区|园区|(?<!社)区|县|旗|市)(?![{_ENDS}])
        |(?P<community>小区|花园|花苑|新村|公寓|大厦|广场|家园|产业园|科技园|家属院|宿舍|别墅|坊|苑
         |(?<![夜心家这那哪城县村海公眼手嘴肚店院屋会包袋胃血体身脑水日年月天])里)(?![{_ENDS}])
        |(?P<street>大道|大街|胡同|(?<![通尿气水电线思旁回铁公马])路|街|巷|弄|(?<![管胆尿阴肠食气孔道呼])道)
         (?:[东西南北中]?[一二三四五六七八九]?[路街段])?(?!径|由|途|过|[{_ENDS}])
    )
    |(?P<estate>CHAR{{2,8}}(?<!医院|卫生院|保健院|住院部|门诊部?|急诊|院区|中心))(?={_NUMBER}(?:号楼|栋|幢|座))
    |(?P<bare>{_NUMBER})(?![.\d岁年月日天次例床%个点时分kmgKMG米])
    )"""
_FIRST_PART, _LATER_PART = (
    regex.compile(_PART.replace("CHAR", rf"[\p{{Han}}--[{outside}]]"), regex.VERBOSE | regex.VERSION1)
    for outside in (NOT_IN_PLACE_NAMES, _NOT_IN_LATER_PARTS)
)
_ANCHOR = regex.compile(
    rf"""(?P<label>(?:地\s?址|住\s?址|住\s?所|住处|现住|家住|常住地?|居住[于在地]?|租住在?|住在?|户籍(?:所在)?地?|户口(?:所在地)?
        |籍贯|老家|家在|寄到|寄往|送到|快递到)(?:地址)?(?:[:：是为写在于]|\s){{0,3}})
    |(?P<region>\L<places>)
    |(?P<start>(?<!{_CHAR})(?={_CHAR}{{1,8}}?(?:区|县|市|镇|乡|街道|路|街|巷|弄|大道|胡同|里|花园|小区|公寓|家园|大厦|新村|苑)))""",
    regex.VERBOSE | regex.VERSION1,
    places=[*_PROVINCES, *_PREFECTURES],
)
_MAX_PARTS = 16
_REGIONS = frozenset({"province", "city", "district"})


class Address(Recogniser):
    """Chinese addresses more precise than a district; after a label, also those of a district."""

    kind = "ADDRESS"
    needs = (
        r"[路街巷弄村镇乡区县栋幢楼室里苑号址道屯庄组大住寓墅坊座寨]|[花家业技]园|[广农林]场|家属院|宿舍|苏木"
        r"|户籍|户口|籍贯|老家|家在|寄到|寄往|送到"
    )

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score; each address is read from the first place where one may begin."""
        done = 0
        for anchor in _ANCHOR.finditer(text):
            start = anchor.end("label") if anchor["label"] is not None else anchor.start()
            if start < done:
                continue
            end, parts = _read(text, start)
            if _is_address(parts, labelled=anchor["label"] is not None):
                yield start + (text[start] == " "), end, 0.8
                done = end


def _read(text: str, start: int) -> tuple[int, list[str]]:
    """Return the end of the last of the consecutive parts from `start`, and the kinds of the parts."""
    parts: list[str] = []
    position = start
    while len(parts) < _MAX_PARTS and (part := (_LATER_PART if parts else _FIRST_PART).match(text, position)):
        kind = str(part.lastgroup)
        if kind == "bare" and (not parts or parts[-1] not in {"community", "room"}):
            break
        parts.append(kind)
        position = part.end()
    while position > start and text[position - 1].isspace():
        position -= 1
    return position, parts


def _is_address(parts: list[str], *, labelled: bool) -> bool:
    """Return True if the parts name a house or a village, or, after a label, a district."""
    kinds = set(parts)
    numbered = bool(kinds & {"number", "room", "bare"})
    regions = next((n for n, part in enumerate(parts) if part not in _REGIONS), len(parts))
    if labelled:
        return len(parts) >= 2 and (numbered or regions >= 2 or bool(kinds & {"town", "village", "group"}))
    if "street" in kinds and "number" in kinds and parts.index("street") < parts.index("number"):
        return True
    if kinds & {"community", "estate"} and kinds & {"room", "bare", "number"}:
        return True
    if "town" in kinds and kinds & {"village", "group"}:
        return True
    return regions >= 1 and bool(kinds & {"town", "village"}) and (regions >= 2 or numbered)


class EnglishAddress(Recogniser):
    """English street addresses: house number and street, with flat, city, state and ZIP code if given."""

    kind = "ADDRESS"
    needs = r"\d\s+[A-Z\d]"
    rules = (
        IdentifierPattern(
            "street",
            r"(?<![\d./-])\d{1,5}[A-Z]?\s+(?:[NSEW]\.?\s+|(?:North|South|East|West)\s+)?(?:[A-Z][a-z]+|\d{1,3}(?:st|nd|rd|th))"
            r"(?:\s[A-Z][a-z]+){0,3}?\s(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|Court|Ct"
            r"|Place|Pl|Way|Terrace|Parkway|Pkwy|Highway|Hwy|Square|Close|Crescent)\b\.?"
            r"(?:,?\s(?:Apt|Apartment|Unit|Suite|Ste|Flat|#)\.?\s?[A-Za-z\d-]+)?"
            r"(?:,\s[A-Z][A-Za-z]+(?:\s[A-Z][a-z]+){0,2})?(?:,\s[A-Z]{2}\b)?(?:,?\s\d{5}(?:-\d{4})?)?",
        ),
    )


_BED_CHAR = rf"[\p{{Han}}--[{NOT_IN_PLACE_NAMES.replace('病', '')}转邀将床加]]"
_BED = regex.compile(
    r"(?P<bed>(?<![\d.-])(?:加|临)?(?:\d{1,3}|(?<![A-Z])[A-Z]\d{1,2})(?:[-—+]\d{1,2}|[A-D])?\s?号?床)"
    r"(?![位旁边头垫单栏铺被褥]|(?<!号床)[上下]|棉被|被子)"
    r"|床\s?号\s?(?:[:：]|是|为)?\s*(?P<value>(?:加|临)?(?:[A-Z]?\d{1,3})(?:[-—+]\d{1,2}|[A-D])?)(?![\d.]|\s?床)"
    r"|(?P<english>\b(?i:(?:(?:ward|room|rm|unit|icu|micu|sicu|nicu|ccu|picu)\.?\s?(?:no\.?\s?)?[A-Z\d]{0,5},?\s){1,2}"
    r"bed\s?(?:no\.?\s?)?)(?:[A-D]|[A-Z]?\d{1,3}[A-Z]?)\b)",
    regex.VERSION1,
)
_WARD = (
    rf"(?:{_BED_CHAR}{{0,9}}?\d{{0,2}}(?:科|病区|病房|监护室|抢救室|观察室|留观室?|产房|楼|区|层|室|组)"
    r"|(?:[A-Z]{1,2})?(?:ICU|CCU)(?:病房|室)?)\d{0,2}"
)
_HOSPITAL = rf"{_BED_CHAR}{{2,16}}?(?:医院|卫生院|保健院|附[一二三]?院|[省市县]?[一二三四五六七八九]院|院区)"
_WARD_BEFORE = regex.compile(
    rf"(?:{_HOSPITAL}(?:{_HOSPITAL})?\s?)?(?:{_WARD}[\s，,]?){{1,4}}$|{_HOSPITAL}\s?$", regex.VERSION1
)
_NUMBER_OF_BEDS = regex.compile(r"(?:开放|共|设|有|增|近|约|余|达|编制|床位|多|至|病床)\s?(?:加)?$")
_BED_CONTEXT = 40


class Bed(Recogniser):
    """Numbers that identify a bed, not counts of beds."""

    kind = "BED"
    needs = r"\d\s?号?床|[A-D]床|床\s?号|(?i:\bbed\b)"

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score of each bed; a name of the hospital before it is included."""
        for match in _BED.finditer(text):
            if match["bed"] is None:
                yield *match.span("english" if match["english"] else "value"), 0.7
                continue
            start, end = match.span("bed")
            context = text[max(0, start - _BED_CONTEXT) : start]
            if before := _WARD_BEFORE.search(context):
                yield start - len(context) + before.start(), end, 0.8
            elif not _NUMBER_OF_BEDS.search(context):
                yield start, end, 0.6


_MONTH = r"(?:0?[1-9]|1[0-2])"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_NUMERAL = "[〇零○一二三四五六七八九十廿卅]"
_MONTH_NAMES = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
#: At least year and month; a year alone reveals no more than an age.
_DATE = (
    r"(?:"
    rf"(?:(?:1[89]|20)\d{{2}}|\d{{2}})\s?年\s?(?:农历|阴历)?\s?(?:{_MONTH}\s?月(?:\s?(?:{_DAY}\s?[日号]|初{_NUMERAL}|{_NUMERAL}{{2,3}}日?)|{_DAY}(?=[，,。；;）)]|$))?"
    rf"|[正冬腊一二三四五六七八九十]{{1,2}}月(?:初?{_NUMERAL}{{1,3}}日?)?)"
    rf"|(?:1[89]|20)\d{{2}}\s?[-./／·]\s?{_MONTH}(?:\s?[-./／·]\s?{_DAY})?(?!\d)"
    rf"|(?:1[89]|20)\d{{2}}{_MONTH.replace('0?', '0')}{_DAY.replace('0?', '0')}(?!\d)"
    rf"|{_NUMERAL}{{4}}年{_NUMERAL}{{1,2}}月(?:初?{_NUMERAL}{{1,3}}[日号]?)?"
    rf"|{_DAY}\s?[-./]\s?{_DAY}\s?[-./]\s?(?:1[89]|20)\d{{2}}(?!\d)"
    rf"|{_MONTH_NAMES}\s{_DAY}(?:st|nd|rd|th)?,?\s(?:1[89]|20)\d{{2}}"
    rf"|{_DAY}(?:st|nd|rd|th)?[\s-]{_MONTH_NAMES},?[\s-](?:1[89]|20)\d{{2}}"
    r")"
)


class BirthDate(Recogniser):
    """Dates of birth with at least year and month, in figures or words, solar or lunar."""

    kind = "BIRTH_DATE"
    needs = r"出生|生|(?i:dob|d\.o\.b|birth|born)"
    rules = (
        IdentifierPattern(
            "label",
            r"(?:出生(?:年月日?|日期|时间)?|生日|生于|(?i:\bDOB\b|\bD\.O\.B\.?|date of birth"
            r"|birth\s?date|birthday|\bborn(?:\son)?))(?:[（(][^（）()\n]{0,6}[)）])?\s*(?:(?:是|为)?\s*[:：=#|]|是|为|于|在|(?i:is|was))?\s*"
            rf"(?:公历|农历|阴历|阳历)?\s*\K{_DATE}",
            0.9,
        ),
        IdentifierPattern(
            "born",
            rf"(?<!\d){_DATE}(?=[^，。；！？,;!?\n]{{0,14}}?出生(?!后|时|体重|缺陷|证|帮|圈)|\s?生(?:[，,。；;人的于)）\s]|$))",
        ),
    )
    _more = regex.compile(r"^\s?[~～—至到]")

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject periods."""
        after = match.string[match.end() : match.end() + 2]
        return 0 if self._more.search(after) else rule.score


class AnyDate(Recogniser):
    """Dates with a day, in figures or words, with or without a year; dates of things are kept."""

    kind = "DATE"
    needs = (
        r"\d[日号]|\d[-./／·]\d|[正冬腊一二三四五六七八九十]月|(?:19|20)\d{6}"
        r"|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    )
    rules = (
        IdentifierPattern("full", rf"(?<![\d.A-Za-z]){_DATE}", 0.7),
        IdentifierPattern("day", rf"(?<![\d.])(?:\d{{2,4}}\s?年\s?)?{_MONTH}\s?月\s?{_DAY}\s?[日号]", 0.7),
        IdentifierPattern("words", rf"(?<!{_NUMERAL}|年){_NUMERAL}{{1,2}}月{_NUMERAL}{{1,3}}[日号]", 0.7),
    )
    #: A date with the name of its month always has a day.
    _day = regex.compile(rf"\d\D+\d+\D+\d|\d{{8}}|月.*[\d{_NUMERAL[1:-1]}]|[A-Za-z]{{3}}")

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject dates of lots, and dates without a day."""
        return rule.score if self._day.search(match.group()) and not of_a_thing(match) else 0
