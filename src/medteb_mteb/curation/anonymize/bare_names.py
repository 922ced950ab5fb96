"""Names of persons without a label or a title, by a logistic regression over features of their context."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import regex

from medteb_mteb.curation.anonymize.kinds import IDENTIFIER_KINDS
from medteb_mteb.curation.anonymize.medicine import is_medical
from medteb_mteb.curation.anonymize.recogniser import Recogniser
from medteb_mteb.curation.anonymize.words import (
    COMPOUND,
    GIVEN,
    NEVER,
    NO_BEGINNING,
    PREPOSITIONS,
    RARE,
    SURNAMES,
    alternatives,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FEATURES", "BareName", "NameCandidate", "candidates", "is_common"]

_ODD = NEVER - GIVEN
_TITLE = regex.compile(alternatives("titles"))

_RUN = regex.compile(r"[\u4e00-\u9fff]{2,}")
#: Length of the longest word in the dictionary look-up, in characters.
_MAX_WORD_LENGTH = 5
#: Frequency, in 60 million words, of medical words that jieba's dictionary lacks or tags as names.
_CLINICAL_FREQUENCY = 300

_KIN = regex.compile(
    rf"(?:{alternatives('role-labels')}|[父母夫妻子女儿孙兄弟姐妹嫂婶姨姑舅叔伯爷奶侄甥媳婿]亲?|老[师乡板公婆]|工友|户主"
    r"|[这那]个|叫做?|名叫|我是|自称|[我他她你]们?)$"
)
_TIME = regex.compile(
    r"(?:[昨今前明后当]天|[昨今]儿?晚?|[上中下]午|早上|早晨|晚上|今[早晨]|目前|最近|刚才?|近日|后经|核实为)$"
)
_CALL = regex.compile(r"[跟给让找问陪带请说]$")
_LINK = regex.compile(r"[和与帮替及由为是被把对像系]$")
_AFTER_NAME = regex.compile(rf"(?:{alternatives('after-names')})")
_VERB = regex.compile(
    r"[又也还说来去吃服做怀确诊咳昨今前上这那有没夫两二等她他才刚已就都家觉感送带背复近把跑收写打到听能要想会开坐拿]|[三四五六七八九十]+岁"
)
#: Words after a part of a longer name, or after an eponym.
_NO_END = regex.compile(r"[·•・．‧∙⋅-]\p{Han}|[氏征症型]|病(?![情人房区历程案床重])|综合")
#: Marks, but no placeholder: it stands for letters or digits, which are none.
_MARK = regex.compile(
    rf"(?!\[(?:{'|'.join(IDENTIFIER_KINDS.values())})\])"
    r"[，,。；;、：:（）()\[\]【】《》“”\"'！!？?…—\-/|\n~～<>＜＞·•]"
)

#: Where no name begins: after the label of a product (商品名称：诺和灵), with a unit after a number.
_NO_NAME_AT = regex.compile(
    r"(?<=(?:药品|药物|商品|通用|化学|产品|制剂|成分)名(?:称)?[】\])）]?\s?[:：]?\s?[\"“]?)|(?<=[A-Za-z\d])(?=[周元时万年支包成段步层代节程余项管])"
    rf"|(?<!\p{{Han}})(?=祝)|(?=周[一二三四五六日末][刚才就又去都也]|能|左[{''.join(NEVER)}叶侧房心脚乳宫附输颈]|那[多么样些个])"
)

#: A name of two characters with a blank between them, as in forms.
_SPACED_NAME = regex.compile(
    r"(?<!\p{Han})(?<!\p{Han}[ 　])(?P<name>(?P<surname>\p{Han})[ 　]{1,2}(?P<given>\p{Han}))"
    r"(?=[，,、。；;：:（(]|$)"
)


#: Minimum probability of a doubtful name, which strict mode replaces and a review sheet shows.
MIN_DOUBTFUL_PROBABILITY = 0.02
_MIN_DOUBTFUL_LOGIT = math.log(MIN_DOUBTFUL_PROBABILITY / (1 - MIN_DOUBTFUL_PROBABILITY))


class NameCandidate(NamedTuple):
    """A span that may be a name.

    Attributes:
        start: Offset of the first character.
        end: Offset after the last character.
        features: Values of `FEATURES`.
    """

    start: int
    end: int
    features: tuple[float, ...]


FEATURES = (
    "bias", "gain", "loss", "surname", "given", "rare", "given-only", "compound", "one", "two",
    "name-is-word", "given-is-word", "begins-word", "crosses-right", "crosses-left",
    "usual-given", "odd-given", "alone", "gain-kin", "gain-after",
    "left-start", "left-colon", "left-mark", "left-space", "left-other",
    "left-kin", "left-time", "left-call", "left-link", "left-han",
    "right-end", "right-mark", "right-space", "right-other", "right-after", "right-verb", "right-title",
    "right-han",
)  # fmt: skip


#: Contexts of a person. The score of a name without one is halved: it may be a brand or a misspelling.
_PERSONAL = ("left-start", "left-kin", "left-time", "left-call", "left-colon", "right-title", "right-verb")
_CUES = tuple(FEATURES.index(context) for context in _PERSONAL)
_FOLLOWED = FEATURES.index("right-after")
#: A less probable name counts by itself only before words that often follow a name (路遥称).
_MIN_SURE_PROBABILITY = 0.9
_MAX_UNSURE_SCORE = 0.45


class _Lexicon(NamedTuple):
    """Log probabilities of words, surnames and characters of given names; common given names."""

    words: Mapping[str, float]
    rest: float
    surnames: Mapping[str, float]
    given: Mapping[str, float]
    names: frozenset[str]


@cache
def _lexicon() -> _Lexicon:
    import jieba  # lazy: jieba

    frequency: dict[str, int] = {}
    surnames: Counter[str] = Counter(dict.fromkeys(SURNAMES | COMPOUND, 1))
    given: Counter[str] = Counter(dict.fromkeys(GIVEN, 1))
    names = set()
    with jieba.get_dict_file() as lines:
        for line in lines:
            word, count, tag = line.decode("utf-8").split()
            # Four characters with this tag are an idiom; names in transliteration have another one.
            idiom = tag == "nr" and len(word) == 4 and word[:2] not in COMPOUND
            if tag.startswith("nr") and len(word) > 1 and not idiom:
                first = 2 if word[:2] in COMPOUND else int(word[0] in SURNAMES)
                if first and first < len(word) <= first + 2:
                    surnames[word[:first]] += int(count)
                    given.update(word[first:])
                elif len(word) == 2 and GIVEN.issuperset(word):
                    names.add(word)
            elif len(word) <= _MAX_WORD_LENGTH:
                frequency[word] = int(count)
    for word in (
        *words("clinical"),
        *words("no-names"),
        *words("ordinary"),
        *words("no-beginnings"),
        *words("medical"),
    ):
        frequency.setdefault(word, _CLINICAL_FREQUENCY)
    total = sum(frequency.values())
    return _Lexicon(
        {word: math.log(count / total) for word, count in frequency.items() if count},
        -math.log(total),
        {name: math.log(count / surnames.total()) for name, count in surnames.items()},
        {char: math.log(count / given.total()) for char, count in given.items()},
        frozenset(names - frequency.keys()),
    )


def is_common(word: str) -> bool:
    """Return True for a word of at least two characters that is frequent in jieba's dictionary."""
    lexicon = _lexicon()
    return len(word) > 1 and lexicon.words.get(word, lexicon.rest) > lexicon.rest + math.log(
        _CLINICAL_FREQUENCY
    )


def candidates(text: str) -> Iterator[NameCandidate]:
    """Yield candidates: a surname with one or two characters, or two that are common as a given name.

    A unigram model with jieba's words segments each run of Chinese characters once without names. `gain` is
    the increase of the best log probability if the candidate is one word with the probability of a name.
    """
    lexicon, no_names = _lexicon(), words("no-names")
    for run in _RUN.finditer(text):
        part, offset = run.group(), run.start()
        forward, backward = _paths(part, lexicon)
        for start in range(len(part) - 1):
            if _NO_NAME_AT.match(text, offset + start):
                continue
            for first, length in _shapes(part, start, lexicon):
                end = start + length
                name = part[start:end]
                if name in no_names or (length == 3 and first == 1 and name[:2] in NO_BEGINNING):
                    continue
                if name[0] in PREPOSITIONS and (length == 2 or not _ODD.isdisjoint(name[1:])):
                    continue
                if not {"某", "氏", "之"}.isdisjoint(name) or _NO_END.match(text, offset + end):
                    continue
                if _inside_word(part, start, end, lexicon):
                    continue
                chance = _chance(name, first, lexicon)
                gain = forward[start] + chance + backward[end] - forward[-1]
                yield NameCandidate(
                    offset + start,
                    offset + end,
                    _features(text, offset + start, offset + end, first, gain, lexicon),
                )


def _paths(part: str, lexicon: _Lexicon) -> tuple[list[float], list[float]]:
    """Return the log probability of the best segmentation of each prefix, and of each suffix, of a run."""
    size = len(part)
    costs = [
        [
            lexicon.words.get(part[start:end], lexicon.rest if end == start + 1 else -math.inf)
            for end in range(start + 1, min(size, start + _MAX_WORD_LENGTH) + 1)
        ]
        for start in range(size)
    ]
    forward = [0.0] + [-math.inf] * size
    for start, row in enumerate(costs):
        for reach, cost in enumerate(row, start=1):
            forward[start + reach] = max(forward[start + reach], forward[start] + cost)
    backward = [-math.inf] * size + [0.0]
    for start in range(size - 1, -1, -1):
        backward[start] = max(
            cost + backward[start + reach] for reach, cost in enumerate(costs[start], start=1)
        )
    return forward, backward


def _shapes(part: str, start: int, lexicon: _Lexicon) -> Iterator[tuple[int, int]]:
    """Yield the lengths of the surname and of the whole name, for each name that may begin at `start`."""
    if part[start : start + 2] in COMPOUND:
        yield from ((2, length) for length in (3, 4) if start + length <= len(part))
    if part[start] in SURNAMES:
        yield from ((1, length) for length in (2, 3) if start + length <= len(part))
    if part[start : start + 2] in lexicon.names and part[start : start + 2] not in COMPOUND:
        yield 0, 2


def _inside_word(part: str, start: int, end: int, lexicon: _Lexicon) -> bool:
    """Return True if a longer word of the dictionary holds the candidate (一劳永逸)."""
    firsts = range(max(0, end - _MAX_WORD_LENGTH), start + 1)
    return any(
        part[first:last] in lexicon.words
        for first in firsts
        for last in range(end, min(len(part), first + _MAX_WORD_LENGTH) + 1)
        if last - first > end - start
    )


def _chance(name: str, first: int, lexicon: _Lexicon) -> float:
    chance = lexicon.surnames[name[:first]] if first else -3.0
    return chance + sum(lexicon.given.get(char, lexicon.rest / 2) for char in name[first:])


def _features(
    text: str, start: int, end: int, first: int, gain: float, lexicon: _Lexicon
) -> tuple[float, ...]:
    name, given = text[start:end], text[start + first : end]
    left, right = _left(text, start), _right(text, end)
    gain = max(-20.0, min(20.0, gain)) / 10

    def wordness(word: str) -> float:
        """Return how common a word is: 0 if unknown, up to 2."""
        return lexicon.words.get(word, -20.0) / 10 + 2

    values = {
        "bias": 1.0,
        "gain": max(gain, 0.0),
        "loss": min(gain, 0.0),
        "surname": (lexicon.surnames[name[:first]] if first else -9.0) / 10,
        "given": sum(lexicon.given.get(char, -15.0) for char in given) / len(given) / 10,
        "rare": first == 1 and name[0] in RARE,
        "given-only": first == 0,
        "compound": first == 2,
        "one": len(given) == 1,
        "two": len(given) == 2 and first > 0,
        "name-is-word": wordness(name),
        "given-is-word": wordness(given) * (len(given) == 2 and first > 0),
        "begins-word": wordness(name[:2]) * (len(name) > 2 and first == 1),
        "crosses-right": wordness(text[end - 1 : end + 1]),
        "crosses-left": wordness(text[start - 1 : start + 1]) if start else 0.0,
        "usual-given": GIVEN.issuperset(given),
        "odd-given": not NEVER.isdisjoint(given),
        f"left-{left}": 1.0,
        f"right-{right}": 1.0,
        "alone": left in ("start", "colon", "mark", "space") and right in ("end", "mark", "space"),
        "gain-kin": gain * (left == "kin"),
        "gain-after": gain * (right in ("after", "verb")),
    }
    return tuple(float(values.get(feature, 0.0)) for feature in FEATURES)


def _left(text: str, start: int) -> str:
    """Return the left context of a candidate, as the end of a feature's name."""
    if not start:
        return "start"
    if text[start - 1] in ":：":
        return "colon"
    if _MARK.match(text[start - 1]):
        return "mark"
    if text[start - 1].isspace():
        return "space"
    if not "\u4e00" <= text[start - 1] <= "\u9fff":
        return "other"
    before = text[max(0, start - 5) : start]
    for kind, pattern in (("kin", _KIN), ("time", _TIME), ("call", _CALL), ("link", _LINK)):
        if pattern.search(before):
            return kind
    return "han"


def _right(text: str, end: int) -> str:
    """Return the right context of a candidate, as the end of a feature's name."""
    if end == len(text):
        return "end"
    if _MARK.match(text, end):
        return "mark"
    if text[end].isspace():
        return "space"
    if not "\u4e00" <= text[end] <= "\u9fff":
        return "other"
    for kind, pattern in (("title", _TITLE), ("after", _AFTER_NAME), ("verb", _VERB)):
        if pattern.match(text, end):
            return kind
    return "han"


@cache
def _weights() -> tuple[float, ...]:
    path = Path(__file__).parent / "words" / "bare-names.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    return tuple(content["weights"][feature] for feature in FEATURES)


class BareName(Recogniser):
    """Names without a label or a title, by a logistic regression over `FEATURES`.

    The score is the probability of the regression, half of it where nothing around the name speaks of a
    person, and limited where it is not sure. Candidates with a probability below `MIN_DOUBTFUL_PROBABILITY`
    are left out.
    """

    kind = "NAME"
    needs = r"\p{Han}{2}"
    last_resort = True

    def spans(self, text: str) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and score; of overlapping candidates, the one with the highest score."""
        for match in _SPACED_NAME.finditer(text):
            if match["surname"] in SURNAMES and match["given"] in GIVEN:
                yield *match.span("name"), 0.3 if match["surname"] in RARE else 0.6
        weights = _weights()
        ranked = []
        for start, end, features in candidates(text):
            value = sum(weight * feature for weight, feature in zip(weights, features, strict=True))
            if value > _MIN_DOUBTFUL_LOGIT:
                ranked.append((value, start, end, features))
        is_taken = bytearray(len(text))
        for value, start, end, features in sorted(ranked, key=lambda one: (-one[0], one[1])):
            if not any(is_taken[start:end]) and not is_medical(text, start, end):
                is_taken[start:end] = b"\1" * (end - start)
                probability = 1 / (1 + math.exp(-value))
                score = probability if any(features[cue] for cue in _CUES) else probability / 2
                sure = features[_FOLLOWED] or probability >= _MIN_SURE_PROBABILITY
                yield start, end, score if sure else min(score, _MAX_UNSURE_SCORE)
