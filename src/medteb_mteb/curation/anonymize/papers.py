"""Recognisers of numbers of a person: identity cards, papers, records, bank cards, plates."""

from __future__ import annotations

import regex

from medteb_mteb.curation.anonymize.checks import digits_of, id_card_digit, is_id_card, passes_luhn
from medteb_mteb.curation.anonymize.recogniser import IdentifierPattern, Recogniser, of_a_thing

__all__ = ["BankCard", "Code", "IdentityCard", "Papers", "Plate", "RecordNumber", "SocialSecurity"]

#: Between a label and its value.
SEP = (
    r"[\"”]?\s*(?:[（(][^（）()\n]{0,8}[)）])?\s*"
    r"(?:(?:是|为)?\s*[:：#＃=|]\s*[\"“]?|号码|编号|是|为|No\.?|no\.?)?\s*[（(【\[]?\s*"
)


class IdentityCard(Recogniser):
    """Resident identity cards; a wrong check digit counts as a typing error."""

    kind = "ID_CARD"
    needs = r"\d{6}"
    rules = (
        IdentifierPattern(
            "18 digits",
            r"(?<!\d)\d{6}[ -]?\d{8}[ -]?\d{3}[\dXxＸ](?![\dA-Za-z])",
        ),
        IdentifierPattern(
            "15 digits",
            r"(?<!\d)\d{15}(?!\d)(?<=(?i:身份证?|证件|证号|户口|旧证|一代证|\bID\b)[^\d\n]{0,16}\d{15})",
            0.9,
        ),
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Return 1 if the check digit is right, less if only province and date are valid."""
        number = digits_of(match.group())
        if not is_id_card(number):
            return 0
        if rule.name == "15 digits":
            return rule.score
        last = "X" if len(number) == 17 else number[17]
        if id_card_digit(number[:17]) == last:
            return 1
        return 0 if of_a_thing(match) else 0.6


class SocialSecurity(Recogniser):
    """US social security numbers, except those that are never issued (000, 666, 9xx)."""

    kind = "SSN"
    needs = r"\d{2}"
    rules = (
        IdentifierPattern("dashes", r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])"),
        IdentifierPattern(
            "label", rf"(?i:\bSSN|social security (?:number|no\.?|#)){SEP}\K(?!000|666|9)\d{{9}}(?!\d)", 0.9
        ),
    )


class Papers(Recogniser):
    """Passports, travel permits and officers' cards, recognised by their label."""

    kind = "PASSPORT"
    needs = (
        r"(?i:证件|护照|通行证|passport|[台军][胞官人]证|回乡证|士兵证|警官证|居留证|居留许可|驾驶证|驾照)"
    )
    rules = (
        IdentifierPattern(
            "label",
            r"(?i:护照|通行证|台胞证|回乡证|居留(?:证|许可)|驾驶证|驾照|(?:军官|士兵|军人|警官)证|passport)号?码?"
            rf"(?i:\s?(?:number|no\.?|#))?{SEP}(?i:(?:number|no\.?)\s*)?(?i:is\s)?"
            r"\K(?=(?:[A-Za-z]{0,17}\d){5})[A-Za-z0-9]{6,18}(?![A-Za-z0-9])",
        ),
        IdentifierPattern("number", rf"证件号?码?{SEP}\K[A-Z]{{1,2}}\d{{7,9}}(?![A-Za-z0-9])"),
        IdentifierPattern(
            "officer",
            r"[\p{Han}]字第\s?\d{4,10}\s?号(?<=(?:军官|士兵|军人|警官|文职)[^\d\n]{0,12}\d{4,10}\s?号)",
        ),
    )


class RecordNumber(Recogniser):
    """Numbers that a hospital or an insurer gave to a person, a stay, a visit or an examination."""

    kind = "RECORD_NUMBER"
    needs = r"\d"
    _OF = (
        "住院|门诊|急诊|就诊|就医|病历|病案|病例|病理|影像|放射|超声|彩超|[BＢ]超|CT|MRI|MR|DR|X线|X光|核磁|心电图?"
        "|脑电图?|肌电图?|内镜|胃镜|肠镜|镜检|检查|检验|化验|标本|样本|体检|登记|挂号|处方|申请|医保|社保|社会保障"
        "|社会保险|医疗保险|保险|新农合|农合|合作医疗|参合|参保|健康|诊疗|医疗|病人|患者|受检者?|残疾|残疾人|低保"
        "|个人|电脑|腕带|流水|条码|救助|慢病|慢特病|门特|转诊|手术|出院|透析|预约|报告|电子|母子|计生|生育|预防接种|接种"
    )
    _VALUE = (
        r"\K(?:[A-Za-z]{1,3} (?=\d{4}))?(?=(?:[A-Za-z-]{0,24}\d){4})"
        r"[A-Za-z0-9](?:[A-Za-z0-9]|[-–_/](?=[A-Za-z0-9])|(?<=\d) (?=\d{4}(?![\d年月日./:：%]))){3,24}"
        r"(?![A-Za-z0-9])"
    )
    rules = (
        IdentifierPattern(
            "chinese",
            rf"(?:(?:{_OF}){{1,3}}(?:卡|证|单|本|档案|手册|凭证)?\s?(?:号码|编号|号|(?i:ID))|(?<![A-Za-z])ID号){SEP}{_VALUE}",
        ),
        IdentifierPattern(
            "bare label",
            r"(?:住院|门诊|病案|病历|病案室登记|住院登记|条码|流水)\s?\K(?=[A-Za-z-]{0,3}\d)[A-Za-z]{0,2}\d[\d-]{5,15}(?![\d./年月日-])",
            0.6,
        ),
        IdentifierPattern(
            "dashes",
            r"登记\s?\K[A-Za-z]{1,3}-?\d{2,4}-\d{2,8}(?![\d-])",
            0.6,
        ),
        IdentifierPattern(
            "card",
            r"(?:就诊|诊疗|医保|社保|健康|病历|就医)卡\s?\K[A-Za-z]{0,2}\d{6,18}(?!\d)|(?:检验|标本|样本|腕带)条码\s?[:：]?\s?\K\d{6,18}(?!\d)",
        ),
        IdentifierPattern(
            "pathology",
            r"病[理检](?:诊断|检查|报告|结果|标本)?(?:回?报?示|提示)?\s*[:：]?\s*[（(]\K[A-Za-z]{0,3}(?:\d{6,12}|\d{4}-\d{3,6})(?=[)）])",
        ),
        IdentifierPattern(
            "english",
            r"(?i:\b(?:MRN|UHID|acct|(?:medical record|hospital|patient|pt|accession|case|chart|account"
            r"|medicare|medicaid|insurance|policy|member|NHS|encounter|specimen|record|visit|health card)\s?"
            r"(?:number|num|no|id|#)))\b\.?(?:\s(?:is|was)\b)?[\s:：#.]*"
            rf"(?:{_VALUE}|\K\d{{3}}\s\d{{3}}\s\d{{4}}(?!\d))",
        ),
    )
    #: Numbers in registers of clinical trials, which are public.
    _trial = regex.compile(r"(?i:ChiCTR|NCT\d{8}|ISRCTN|CTR20\d{6}|EUCTR)")

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject numbers of trials."""
        return 0 if self._trial.match(match.group()) else rule.score


class Code(Recogniser):
    """Numbers of six digits or more without a label, with or without letters: doubtful."""

    kind = "RECORD_NUMBER"
    needs = r"\d"
    last_resort = True
    rules = (
        IdentifierPattern(
            "code",
            r"(?<![A-Za-z0-9.:/@_-])(?=(?:[A-Za-z-]*\d){6})[A-Za-z0-9](?:[A-Za-z0-9]|-(?=[A-Za-z0-9])){5,24}"
            r"(?![A-Za-z0-9%/@_-]|\.\d|\s?(?i:m[glm]|g\b|kg|iu|u\b|元|次|例|人|步|个|万|单位))",
            0.05,
        ),
    )
    _quantity = regex.compile(r"\d+(?i:m[glm]|k?g|iu|u)$")
    _date = regex.compile(
        r"(?:19|20)\d{2}-?(?:0[1-9]|1[0-2])-?(?:[0-2]\d|3[01])$|(?:19|20)\d{2}-(?:19|20)\d{2}$"
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject numbers of things, dates and quantities."""
        text = match.group()
        return 0 if of_a_thing(match) or self._date.match(text) or self._quantity.match(text) else rule.score


class BankCard(Recogniser):
    """Bank cards that pass the Luhn check, and account numbers with a label."""

    kind = "BANK_CARD"
    needs = r"\d{4}"
    _GROUPS = r"\d{4}(?:[ -]?\d{4}){2}(?:[ -]?\d{3,4})(?:[ -]?\d{1,3})?"
    rules = (
        IdentifierPattern(
            "card",
            rf"(?<![\d.-])(?=62|60|4|5[1-5]|3[457]|2[2-7]){_GROUPS}(?![\d-]|\.\d)",
        ),
        IdentifierPattern(
            "label",
            r"(?:银行卡|信用卡|储蓄卡|借记卡|卡号|[账帐][号户])(?:号码?)?[^\d\n，。；]{0,6}?"
            r"\K\d{4}(?:[ -]?\d){8,15}(?![\d-])",
            0.7,
        ),
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Return 1 if the number passes the Luhn check; without a label it must pass."""
        if rule.name == "card" and of_a_thing(match):
            return 0
        if passes_luhn(digits_of(match.group())):
            return 1
        return rule.score if rule.name == "label" else 0


class Plate(Recogniser):
    """Vehicle plates of mainland China (GA 36-2018), including the six characters of new-energy vehicles."""

    kind = "PLATE"
    needs = r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][A-HJ-NP-Z]"
    rules = (
        IdentifierPattern(
            "plate",
            r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼](?!CD\d)[A-HJ-NP-Z][·•・．.\s-]?"
            r"(?:[DF][A-HJ-NP-Z\d]\d{4}|\d{5}[DF]|[A-HJ-NP-Z\d]{5}|[A-HJ-NP-Z\d]{4}[挂学警港澳领使])(?![A-Za-z\d.])",
        ),
    )
    _digits = regex.compile(r"\d")

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject plates with fewer than two digits."""
        return rule.score if len(self._digits.findall(match.group())) >= 2 else 0
