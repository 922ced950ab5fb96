"""Names of persons in English text: after a title or a label, or before a degree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.curation.anonymize.recogniser import IdentifierPattern, Recogniser
from medteb_mteb.curation.anonymize.words import words

if TYPE_CHECKING:
    import regex

__all__ = ["EnglishName"]

_WORD = r"(?:(?:[A-Z]['’]|Mc|Mac|De|Di|La|Le|Van|von|de|van)\s?)?[A-Z][a-z]+(?:-[A-Z][a-z]+)?"
_INITIAL = r"[A-Z]\."
_FULL_NAME = rf"{_WORD}(?:\s(?:{_WORD}|{_INITIAL})){{1,2}}"
_ANY_NAME = rf"(?:{_INITIAL}\s?)?{_WORD}(?:\s(?:{_WORD}|{_INITIAL})){{0,2}}"
_END = r"(?![A-Za-z]|-[A-Za-z])"
_DEGREE = r"(?:MD|M\.D\.|DO|RN|PhD|Ph\.D\.|NP|PA-C|PA|FACS|MBBS|DDS|PharmD|DOB|SSN|MRN)\b"
_COMMON = frozenset(words("english-words"))


class EnglishName(Recogniser):
    """Names with a title (Dr., Mrs.), a label (Patient, Name:) or a degree (MD, RN)."""

    kind = "NAME"
    needs = r"[A-Z][a-z]"
    rules = (
        IdentifierPattern(
            "title", rf"\b(?:Dr|Mr|Mrs|Ms|Miss|Prof|Professor|Doctor|Nurse|Sister)\b\.?\s\K{_ANY_NAME}{_END}"
        ),
        IdentifierPattern(
            "label",
            r"\b(?i:(?:patient(?:'s)?\s|full\s|last\s|first\s)?name|surgeon|an(?:a)?esthetist|anesthesiologist"
            r"|(?:attending|referring|treating|primary care)?\s?physician|PCP|provider|next of kin|pharmacist"
            r"|emergency contact|contact person|guarantor|spouse|caregiver|guardian"
            r"|(?:patient|pt)(?=:)|(?:signed(?: electronically)?|dictated|reviewed|reported|performed) by)"
            rf"\s?[:：]?\s?\K{_ANY_NAME}{_END}",
        ),
        IdentifierPattern(
            "role",
            r"\b(?:[Pp]atient|[Pp]t|[Gg]uarantor|[Ss]pouse|[Dd]aughter|[Ss]on|[Hh]usband|[Ww]ife|[Mm]other"
            r"|[Ff]ather|[Bb]rother|[Ss]ister|[Nn]amed|[Mm]y name is"
            rf"|(?:[Ss]ummary|[Rr]eport|[Ll]etter|[Nn]ote) for),?\s\K{_FULL_NAME}{_END}"
            r"(?!\s(?:[Dd]isease|[Ss]yndrome|[Ss]core|[Tt]est|[Hh]ospital|[Cc]linic|[Cc]enter))",
            0.6,
        ),
        IdentifierPattern("degree", rf"(?<![A-Za-z]|[A-Za-z] |\b[A-Z]\. ){_FULL_NAME}(?=,?\s\(?{_DEGREE})"),
        IdentifierPattern("with", rf"\b(?:by|with|for|from|per|to)\s\K{_FULL_NAME}(?=,?\s\(?{_DEGREE})"),
    )

    def check(self, match: regex.Match[str], rule: IdentifierPattern) -> float:
        """Reject a name that begins with an ordinary word; after a role, one that contains such a word."""
        parts = match.group().replace(".", "").split()
        if parts[0] in _COMMON or (rule.name == "role" and not _COMMON.isdisjoint(parts)):
            return 0
        return rule.score
