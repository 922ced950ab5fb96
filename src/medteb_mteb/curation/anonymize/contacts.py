"""Recognisers of contact data: phones, e-mail addresses, accounts, web pages."""

from __future__ import annotations

import regex

from medteb_mteb.curation.anonymize.checks import digits_of
from medteb_mteb.curation.anonymize.recogniser import IdentifierPattern, Recogniser, of_a_thing

__all__ = ["Email", "Landline", "MessengerAccount", "Phone", "Url"]

_UNIT = r"\s?(?i:mg|ml|ug|μg|g\b|kg|iu|u/|mmol|μmol|ng|pg|cm|mm|次|元|例|人|盒|支|片|%)"


_NUMERAL = "[一二三四五六七八九零〇幺]"


class Phone(Recogniser):
    """Mobile phones of mainland China, and numbers in international or US format."""

    kind = "PHONE"
    needs = r"\d{3}|[一幺][三四五六七八九]"
    rules = (
        IdentifierPattern(
            "mobile",
            rf"(?:(?<![\d.\-A-Za-z_])|(?<=(?i:tel|phone|mobile|call|wx|vx)))"
            r"(?:[+＋]?(?:00)?86[-\s]?)?[1１][3-9３-９]\d(?:[-\s.]?\d{4}){2}"
            rf"(?!\d|\.\d|[×xX*]\s?10|@|{_UNIT})",
        ),
        IdentifierPattern(
            "numerals",
            rf"(?<!{_NUMERAL})[一幺][三四五六七八九]{_NUMERAL}(?:[ 　-]?{_NUMERAL}{{4}}){{2}}(?!{_NUMERAL})",
        ),
        IdentifierPattern(
            "us",
            r"(?<![\d-])(?:\+?1[-.\s])?(?:\([2-9]\d{2}\)\s?|[2-9]\d{2}[-.])\d{3}[-.]\d{4}"
            r"(?![\d-])",
        ),
        IdentifierPattern(
            "abroad",
            r"(?<![\d+])(?:\+|00)(?!86)[1-9]\d{0,2}[-\s.]?\(?\d{1,4}\)?(?:[-\s.]?\d{2,4}){2,4}(?!\d|\.\d)",
            0.6,
        ),
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject free service numbers (400, 800, 888), and international numbers that cannot exist."""
        if of_a_thing(match):
            return 0
        number = match.group()
        if rule.name == "us":
            return 0 if digits_of(number)[-10:-7] in {"400", "800", "888", "877", "866"} else rule.score
        if rule.name == "abroad":
            return rule.score if _exists(number) else 0
        return rule.score


def _exists(number: str) -> bool:
    import phonenumbers  # lazy: phonenumbers

    exists = phonenumbers.is_valid_number if number.startswith("00") else phonenumbers.is_possible_number
    try:
        return bool(exists(phonenumbers.parse(f"+{number.removeprefix('00').removeprefix('+')}")))
    except phonenumbers.NumberParseException:
        return False


class Landline(Recogniser):
    """Landlines of mainland China: with an area code, or without one but with a label."""

    kind = "LANDLINE"
    needs = r"\d{3}"
    _LOCAL = r"[2-8]\d{2,3}[-\s]?\d{4}(?:\s?(?:转|-|(?i:ext)\.?)\s?\d{1,5})?"
    _AREA = r"(?:10|2[0-57-9]|[3-9]\d{2})"
    rules = (
        IdentifierPattern(
            "area code",
            rf"(?<![\d.\-A-Za-z])(?:\+?86[-\s]?)?[（(]?0{_AREA}[)）]?\s?[-—–－]?\s?{_LOCAL}"
            rf"(?!\d|\.\d|{_UNIT})",
        ),
        IdentifierPattern("from abroad", rf"(?<!\d)(?:\+|00)86[-\s]?{_AREA}[-\s]{_LOCAL}(?!\d)"),
        IdentifierPattern(
            "label",
            r"(?i:电话|座机|固话|家电|宅电|办电|传真|热线|\btel|\bfax)(?:号码?)?\.?\s*(?:(?:是|为)?\s*[:：|]|是|为)?\s*"
            rf"\K(?!400|800){_LOCAL}(?!\d|{_UNIT})",
            0.7,
        ),
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject numbers of things."""
        return 0 if of_a_thing(match) else rule.score


class Email(Recogniser):
    """E-mail addresses."""

    kind = "EMAIL"
    needs = "@"
    rules = (
        IdentifierPattern(
            "address",
            r"(?<![A-Za-z0-9._%+-])[._%+-]*\K[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}"
            r"(?![A-Za-z])",
            1.0,
        ),
    )


class Url(Recogniser):
    """Web addresses of a person's page: with a query, a number, a user or a long token."""

    kind = "URL"
    needs = r"://|www\.|\.(?:com|cn|net|org)/"
    rules = (
        IdentifierPattern(
            "address",
            r"(?i:(?:https?|ftp)://|(?<![a-z0-9.@-])www\.|(?<![a-z0-9.@/-])(?=(?:[a-z0-9-]+\.)+(?:com|cn|net|org)/))"
            r"[A-Za-z0-9\-._~:/?#@!$&'*+,;=%]+(?<![.,;:!?'])",
        ),
    )
    _personal = regex.compile(
        r"\d{4}|=|/(?i:u|user|users|uid|people|patient|patients|member|profile|home)/|/[^/]*(?:\d[^/\d]*){3,}"
        r"|/(?=[^/]*[a-z])(?=[^/]*[A-Z\d])[A-Za-z0-9_-]{8,}|/[A-Za-z0-9]+_[A-Za-z0-9_]+/?$",
    )
    _after_host = regex.compile(r"[/?#]")
    _people = regex.compile(
        r"(?i)(?:^|\.)(?:blog|weibo|space|qzone|douyin|xiaohongshu|facebook|instagram|twitter)\."
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject a bare host, which does not identify a person."""
        url = match.group()
        address = url.partition("://")[2] if "://" in url else url
        host = self._after_host.split(address, maxsplit=1)[0]
        path = address[len(host) :].removeprefix("/")
        if "@" in host:
            return rule.score
        return rule.score if self._personal.search(f"/{path}") or (path and self._people.search(host)) else 0


class MessengerAccount(Recogniser):
    """Accounts of messengers and video sites, recognised by their label."""

    kind = "ACCOUNT"
    needs = (
        r"(?i:微\s?信|薇信|威信|v信|加\s?v|qq|扣扣|企鹅|we\s?chat|weixin|vx|wx|抖音|快手|小红书|支付宝|微博"
        r"|(?<![a-z0-9])q\s?[:：]?\s?[1-9]|[账帐]号|用户名|(?<![a-z])line)"
    )
    _NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_]|[-.](?=[A-Za-z0-9])){4,24}(?![A-Za-z0-9_@])"
    rules = (
        IdentifierPattern(
            "farther",
            rf"(?i:微\s?信|(?<![a-z])qq)[^\n。！!\d]{{1,20}}?(?:号[是为：:]?|是|[:：])\s*\K(?=[A-Za-z0-9_-]{{0,24}}[\d_-]){_NAME}",
            0.6,
        ),
        IdentifierPattern("wxid", r"wxid_[A-Za-z0-9]{6,24}", 1.0),
        IdentifierPattern(
            "messenger",
            r"(?i:微\s?信|薇信|威信|(?<![a-z])v信|we\s?chat|weixin|(?<![a-z])[vw]x|加\s?v(?=[\s:：]))"
            rf"(?:号码?|(?i:\s?id)|账号|同号)?\s*(?:(?:是|为)?\s*[:：|]|是|为|号)?\s*\K(?=[A-Za-z0-9_-]{{0,24}}[\d_-]){_NAME}",
        ),
        IdentifierPattern(
            "reversed",
            rf"(?<![A-Za-z0-9_.-])(?=[A-Za-z0-9_-]{{0,24}}\d){_NAME}(?=[,，\s]?(?:这?是)?我的?(?:微\s?信|QQ|qq))",
        ),
        IdentifierPattern(
            "qq",
            r"(?i:(?<![a-z])qq|扣扣|企鹅)(?:号码?|群号?)?\s*(?:吗|[:：？]|是|为|我的?|\s){0,5}\K[1-9]\d{4,11}(?!\d|@)",
        ),
        IdentifierPattern(
            "named",
            r"(?:(?:(?:微信|抖音|快手|小红书|支付宝|微博)(?:号|账号|ID)|(?i:we\s?chat\sid))\s*(?:(?:是|为)?\s*[:：|]|是|为)?"
            r"|微信\s*[:：])\s*"
            rf"\K(?=[A-Za-z0-9_.-]{{5}}){_NAME}",
        ),
        IdentifierPattern("letter", r"(?<![A-Za-z0-9])[qQ]\s?[:：]?\s?\K[1-9]\d{6,10}(?!\d|@)", 0.6),
        IdentifierPattern(
            "account",
            rf"(?:[账帐]号|用户名|(?i:(?<![a-z])line)\s?(?:id|号)?)\s*(?:[:：]|是|为)?\s*"
            rf"\K(?=[A-Za-z0-9_.-]{{0,24}}[A-Za-z])(?=[A-Za-z0-9_.-]{{0,24}}[\d_-]){_NAME}",
            0.6,
        ),
    )
