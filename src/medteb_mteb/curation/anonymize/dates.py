"""Dates of birth, which have a label, and other dates with a day, which only strict mode replaces."""

from __future__ import annotations

import regex

from medteb_mteb.curation.anonymize.recogniser import IdentifierPattern, Recogniser, of_a_thing

__all__ = ["AnyDate", "BirthDate"]

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
