"""Documents in seven registers, each with the cells that it answers and how well."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tools.mini.cells import NAME_LISTS, SPECIAL_INTENT, Cell, seeded
from tools.mini.queries import fit
from tools.mini.wording import register_wording, wording_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tools.mini.cells import Entity, World

    Body = Callable[["Entity", Sequence["_Part"], str, random.Random], str]

REGISTERS = ("consult", "leaflet", "encyc", "nursing", "report", "forum", "qa")
MIN_CHARS, MAX_CHARS = 80, 400

_WEIGHTS: dict[str, tuple[int, ...]] = {
    "condition": (26, 8, 18, 12, 8, 16, 12),
    "drug": (18, 32, 14, 10, 0, 13, 13),
    "symptom": (30, 6, 18, 14, 0, 20, 12),
    "exam": (12, 12, 16, 12, 24, 12, 12),
}
# Probability that a document of a register also answers a second question about its subject.
_SECOND_QUESTION_SHARE: dict[str, float] = {
    "consult": 0.35, "leaflet": 0.45, "encyc": 0.55, "nursing": 0.1, "report": 0.1, "forum": 0.1, "qa": 0.05,
}  # fmt: skip
_PLAIN_TITLE_SHARE = 0.22
_PATIENT_TITLE_SHARE = {"consult": 0.2, "forum": 0.25}
_ALIAS_SHARE = {"condition": 0.35, "drug": 0.2}
_BOTH_NAMES_SHARE = 0.8
# Probability that a document quotes a lay word besides the clinical name.
_LAY_QUOTE_SHARE = 0.35
_PATIENT_TITLES = ("{w}，请帮忙看看", "{w}", "{w}，有人懂吗", "“{w}”的问题", "{w}，是说{n}吗")
# Probability that the question is repeated before it is answered.
_ECHO_SHARE = {"consult": 0.45, "forum": 0.3, "nursing": 0.3, "report": 0.3, "qa": 0.7}
_ECHOES = {
    "consult": ("您问的是“{q}”。", "您的问题：{q}？", "关于“{q}”，回复如下。"),
    "forum": ("你问{q}，我说说我知道的。", "“{q}”，这个我也搜过。", "{q}？别急，往下看。"),
    "nursing": ("常有家属问：{q}？", "大家最想知道“{q}”。", "先回答一个问题：{q}？"),
    "report": ("您留言问“{q}”。", "本次提问：{q}？", "附言写的是“{q}”。"),
    "qa": ("问：{q}？答：", "问题是“{q}”。答：", "提问：{q}？回答："),
}
_QUESTION = re.compile("什么|怎|吗|哪|多久|如何|会不会|要不要")
_SPECIFIC_HEADS = {"condition": "疾病名称", "drug": "药品名称", "symptom": "症状名称", "exam": "检查名称"}


@dataclass(frozen=True)
class Document:
    """A synthetic document.

    Attributes:
        title: A short title, not part of ``text``.
        text: Text of 80 to 400 characters.
        entity: Key of its subject.
        register: One of ``REGISTERS``.
        answers: By cell, ``"S"`` (the main question of the document) or ``"A"`` (answered in part).
    """

    title: str
    text: str
    entity: str
    register: str
    answers: dict[Cell, str]


class _Part(NamedTuple):
    """A cell of a document with the phrases chosen for it."""

    cell: Cell
    phrases: tuple[str, ...]


def choose_side(world: World, cell: Cell, register: str, rng: random.Random) -> list[Cell]:
    """Return further questions that a general document of this register also answers."""
    if cell.group or rng.random() >= _SECOND_QUESTION_SHARE[register]:
        return []
    others = [
        other
        for other in world.cells_of(cell.entity)
        if not other.group and other.intent != cell.intent and other.intent != "department"
    ]
    return rng.sample(others, min(len(others), 2 if register == "encyc" and rng.random() < 0.4 else 1))


def build_document(world: World, cell: Cell, *seed: object) -> Document:
    """Write a document whose main question is ``cell``; equal arguments give equal text."""
    rng = seeded("document", *seed, cell)
    entity = world.entities[cell.entity]
    register = rng.choices(REGISTERS, _WEIGHTS[entity.kind])[0]
    parts = [_part(world, cell, rng)]
    parts += [_part(world, side, rng) for side in choose_side(world, cell, register, rng)]
    name = _display_name(entity, cell, rng)
    text = _BODIES[register](entity, parts, name, rng)
    while len(text) > MAX_CHARS and len(parts) > 1:
        parts.pop()
        text = _BODIES[register](entity, parts, name, rng)
    text = _pad(text, register, rng)
    if not MIN_CHARS <= len(text) <= MAX_CHARS:
        raise ValueError(f"document for {cell} has {len(text)} characters, expected 80 to 400: {text}")
    return Document(
        _title(entity, cell, register, name, rng), text, entity.key, register, _answers(world, parts)
    )


def _answers(world: World, parts: Sequence[_Part]) -> dict[Cell, str]:
    answers: dict[Cell, str] = {}
    for part in parts:
        for leak in sorted(world.leaks(part.cell, part.phrases)):
            answers.setdefault(leak, "A")
    for part in parts[1:]:
        answers[part.cell] = "A"
    answers[parts[0].cell] = "S"
    return answers


def _part(world: World, cell: Cell, rng: random.Random) -> _Part:
    facts = list(dict.fromkeys(world.facts(cell)))
    if len(facts) > 3:
        facts = rng.sample(facts, rng.choice((3, len(facts))) if len(facts) <= 5 else rng.choice((3, 4, 5)))
    elif len(facts) > 1 and cell.intent not in ("missed", "storage", "prognosis"):
        rng.shuffle(facts)
    return _Part(cell, tuple(facts))


def _display_name(entity: Entity, cell: Cell, rng: random.Random) -> str:
    name = entity.name
    if entity.aliases and rng.random() < _ALIAS_SHARE.get(entity.kind, 0.0):
        name = rng.choice(entity.aliases)
    return f"{cell.group}{name}" if cell.group and cell.intent != SPECIAL_INTENT else name


def _title(entity: Entity, cell: Cell, register: str, name: str, rng: random.Random) -> str:
    chance = rng.random()
    if entity.lay and chance < _PATIENT_TITLE_SHARE.get(register, 0.0):
        return rng.choice(_PATIENT_TITLES).format(w=rng.choice(entity.lay), n=name)
    if chance > 1 - _PLAIN_TITLE_SHARE:
        return rng.choice(register_wording()[register].titles).format(n=name)
    template = rng.choice(wording_of(entity, cell.intent).titles)
    return fit(template, entity).format(n=name, g=cell.group)


def join_phrases(phrases: Sequence[str], names: bool, spoken: bool, rng: random.Random) -> str:
    """Join facts as a writer would; they are nouns if ``names`` is true, otherwise clauses."""
    if len(phrases) == 1:
        return phrases[0]
    if names:
        last = rng.choice(("、", "和", "，还有", "以及") if spoken else ("、", "和", "以及", "、"))
        return "、".join(phrases[:-1]) + last + phrases[-1]
    commas = any(re.search("[，、；]", phrase) for phrase in phrases)
    if spoken:
        styles = ("；", "；", "、") if commas else ("，", "，还有", "；", "，再就是")
        glue = rng.choice(styles[:2] if commas else styles)
        return (
            glue.join(phrases)
            if glue in "，；"
            else "，".join(phrases[:-1]) + glue + phrases[-1]
        )  # fmt: skip
    style = rng.choice(("semicolon", "digits", "circles", "ordinals") if commas else _STYLES)
    if style == "semicolon":
        return "；".join(phrases)
    if style == "commas":
        return "，".join(phrases)
    marks = {
        "digits": "1. 2. 3. 4. 5. 6.",
        "circles": "① ② ③ ④ ⑤ ⑥",
        "ordinals": "一是 二是 三是 四是 五是 六是",
    }
    return "；".join(mark + phrase for mark, phrase in zip(marks[style].split(), phrases, strict=False))


_STYLES = ("semicolon", "commas", "digits", "circles", "ordinals")


def _sentence(entity: Entity, part: _Part, name: str, rng: random.Random, spoken: bool = False) -> str:
    wording = wording_of(entity, part.cell.intent)
    template = rng.choice(wording.talk if spoken else wording.say)
    joined = join_phrases(part.phrases, part.cell.intent in NAME_LISTS, spoken, rng)
    text = fit(template, entity).format(n=name, l=joined, g=part.cell.group)
    return text if text.endswith("。") else text + "。"


def _frame(
    register: str, entity: Entity, name: str, parts: Sequence[_Part], rng: random.Random
) -> tuple[str, str]:
    """Return the text before and after the answers."""
    wording = register_wording()[register]
    full = f"{name}（{entity.name}）" if name in entity.aliases and rng.random() < _BOTH_NAMES_SHARE else name
    opening = rng.choice(wording.open).format(n=full)
    if entity.lay and rng.random() < _LAY_QUOTE_SHARE:
        plain = name.removeprefix(parts[0].cell.group)
        opening += rng.choice(wording.word).format(n=plain, w=rng.choice(entity.lay))
    opening += "".join(rng.sample(wording.middle, rng.choices((0, 1, 2), (3, 5, 2))[0]))
    if rng.random() < _ECHO_SHARE.get(register, 0.0):
        opening += _echo(register, entity, parts[0].cell, name, rng)
    return opening, "".join(rng.sample(wording.close, rng.choices((1, 2), (7, 3))[0]))


def _echo(register: str, entity: Entity, cell: Cell, name: str, rng: random.Random) -> str:
    """Return the question as repeated by the writer in other words."""
    titles = wording_of(entity, cell.intent).titles
    questions = [title for title in titles if _QUESTION.search(title)]
    if not questions:
        return ""
    question = fit(rng.choice(questions), entity).format(n=name, g=cell.group)
    return rng.choice(_ECHOES[register]).format(q=question)


def _consult(entity: Entity, parts: Sequence[_Part], name: str, rng: random.Random) -> str:
    opening, closing = _frame("consult", entity, name, parts, rng)
    colon = rng.choice(("：", ":"))
    sentences = [_sentence(entity, part, name, rng) for part in parts]
    if len(sentences) > 1:
        # The main answer is the advice; the second one explains the case.
        return f"病情分析{colon}{opening}{sentences[1]}意见建议{colon}{sentences[0]}{closing}"
    if rng.random() < 0.5:
        return f"病情分析{colon}{opening}意见建议{colon}{sentences[0]}{closing}"
    return f"病情分析{colon}{opening}{sentences[0]}意见建议{colon}{closing}"


def _leaflet(entity: Entity, parts: Sequence[_Part], name: str, rng: random.Random) -> str:
    opening, closing = _frame("leaflet", entity, name, parts, rng)
    text = f"【{_SPECIFIC_HEADS[entity.kind]}】{name}。"
    if entity.kind == "drug" and entity.aliases and rng.random() < 0.5:
        brand = name if name in entity.aliases else rng.choice(entity.aliases)
        text = f"【药品名称】通用名称：{entity.name}；商品名称：{brand}。"
    text += f"【阅读说明】{opening}"
    for part in parts:
        head = rng.choice(wording_of(entity, part.cell.intent).heads)
        head = fit(head, entity).format(g=part.cell.group)
        joined = join_phrases(part.phrases, part.cell.intent in NAME_LISTS, False, rng)
        text += f"【{head}】{joined}。"
    return text + f"【其他】{closing}"


def _encyc(entity: Entity, parts: Sequence[_Part], name: str, rng: random.Random) -> str:
    opening, closing = _frame("encyc", entity, name, parts, rng)
    others = [alias for alias in (entity.name, *entity.aliases) if alias not in name + opening]
    if others and rng.random() < 0.4:
        opening += f"它还有“{rng.choice(others)}”的叫法。"
    return opening + "".join(_sentence(entity, part, name, rng) for part in parts) + closing


def _plain(register: str, spoken: bool = False) -> Body:
    """Return the body function of a register that states the answers one after the other."""

    def body(entity: Entity, parts: Sequence[_Part], name: str, rng: random.Random) -> str:
        opening, closing = _frame(register, entity, name, parts, rng)
        return opening + "".join(_sentence(entity, part, name, rng, spoken) for part in parts) + closing

    return body


_BODIES: dict[str, Body] = {
    "consult": _consult,
    "leaflet": _leaflet,
    "encyc": _encyc,
    "nursing": _plain("nursing"),
    "report": _plain("report"),
    "forum": _plain("forum", spoken=True),
    "qa": _plain("qa"),
}


def _pad(text: str, register: str, rng: random.Random) -> str:
    """Lengthen short texts with further closing remarks, which contain no facts."""
    remarks = [remark for remark in register_wording()[register].close if remark not in text]
    rng.shuffle(remarks)
    while len(text) < MIN_CHARS and remarks:
        text += remarks.pop()
    return text
