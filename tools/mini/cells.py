"""Cells: the unit of meaning that queries ask for and documents answer.

A cell is (entity, intent, group). Polarity is part of the intent: ``diet_good`` and ``diet_avoid``, or
``high`` and ``low``, are different cells, so a text with the wrong answer never counts.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.mini.knowledge import Knowledge, PatientGroup

INTENTS: dict[str, tuple[str, ...]] = {
    "condition": (
        "symptoms", "causes", "treatment", "drugs", "exams", "diet_good", "diet_avoid", "care", "prognosis",
        "spread", "department", "complications",
    ),
    "drug": (
        "indication", "usage", "side_effects", "contraindications", "interactions", "missed", "storage",
    ),
    "symptom": ("reasons", "handling", "alarm", "department"),
    "exam": ("purpose", "preparation", "high", "low", "process"),
}  # fmt: skip
SPECIAL_INTENT = "special"
GROUPED_INTENTS = ("causes", "exams", "diet_good", "diet_avoid", "prognosis")
# Groups so different that advice for another one is a wrong answer; men, women and adults overlap with them.
CONTRAST_GROUPS = ("婴幼儿", "儿童", "青少年", "孕妇", "哺乳期女性", "老年人")
_YOUNG_GROUPS = frozenset({"婴幼儿", "儿童", "青少年"})
_SINGLE_GROUPS = (_YOUNG_GROUPS, {"女性", "孕妇", "哺乳期女性"}, {"老年人"}, {"老年人", "男性"})
_NAMES_GROUP = re.compile("小儿|儿童|婴|幼儿|妊娠|流产|孕|乳腺炎")
NAME_LISTS = frozenset({"symptoms", "exams", "drugs", "department", "indication"})

# A symptom and the condition that mainly consists of it: people use the same words for both, so the test
# queries ask for neither. Both stay in the corpus and in the train split.
TWINS = {
    "便秘": "功能性便秘", "失眠": "失眠障碍", "孕吐": "妊娠剧吐", "脱发": "雄激素性脱发",
    "遗尿": "儿童遗尿症",
    "面部粉刺": "痤疮", "眼干": "干眼症", "眩晕": "良性阵发性位置性眩晕", "痛经症状": "原发性痛经",
    "口腔溃疡": "复发性阿弗他溃疡", "射精过快": "早泄", "勃起困难": "勃起功能障碍", "皮肤白斑": "白癜风",
    "风团": "荨麻疹", "情绪低落": "抑郁症", "焦虑不安": "广泛性焦虑障碍", "强迫行为": "强迫症",
    "打鼾": "阻塞性睡眠呼吸暂停", "小儿惊厥": "热性惊厥", "口角歪斜": "特发性面神经麻痹",
    "肩部活动受限": "肩周炎", "足跟痛": "跖筋膜炎", "间歇性跛行": "下肢动脉硬化闭塞症",
    "惊恐发作": "广泛性焦虑障碍",
}  # fmt: skip

# Words with which a phrase of another intent also answers this one; the document then answers it in part.
_LEAK_PATTERNS: dict[str, re.Pattern[str]] = {
    "diet_avoid": re.compile(
        r"少吃|忌口|不要吃|别吃|不吃|忌食|避免(?:进食|食用|吃)|[戒忌禁不少别]喝?酒|少喝|别喝"
    ),
    "diet_good": re.compile(r"多吃|多喝|多饮|宜吃|饮食清淡|清淡饮食"),
    "spread": re.compile(r"传染|遗传|家族"),
    "alarm": re.compile(r"就医|就诊|去医院|送医|急诊|急救|120|看医生"),
    "preparation": re.compile(r"空腹|禁食|检查前|提前"),
}
_NUMERIC_EXAM_KINDS = frozenset({"血液检验", "尿液检验", "精液检验"})
_NUMERIC_EXAMS = frozenset({"骨密度", "碳13呼气试验", "尿流率", "眼压测量", "动态血压监测", "唐氏筛查"})
_ORAL_FORM = re.compile("(?<!阴道)片|胶囊|颗粒|口服|丸|散|糖浆|酊剂")
_OUTCOME_WORDS = re.compile(r"不管|不治|拖|延误|失治|放任|发展|进展|恶变|累及|后遗")
# Only these intents give advice to a group; a child among the causes or indications is not advice.
_GROUP_LEAKS_FROM = frozenset({"treatment", "care", "usage", "contraindications"})
_GROUP_WORDS: dict[str, re.Pattern[str]] = {
    "孕妇": re.compile(r"孕|妊娠|怀胎"),
    "哺乳期女性": re.compile(r"哺乳|喂奶|母乳"),
    "老年人": re.compile(r"老年|老人|高龄|年老|岁以上"),
    "儿童": re.compile(r"儿童|小儿|患儿|孩|岁以下|岁下|未成年"),
    "婴幼儿": re.compile(r"婴|新生儿|幼儿|月龄|岁以下|岁下"),
    "青少年": re.compile(r"青少年|未成年|18岁以下|青春期"),
    "女性": re.compile(r"女|经期"),
    "男性": re.compile(r"男"),
    "成人": re.compile(r"成人|成年"),
}


@dataclass(frozen=True, order=True)
class Cell:
    """A question of a patient: the key of an entity, an intent and, if it matters, a patient group."""

    entity: str
    intent: str
    group: str = ""


@dataclass(frozen=True)
class Entity:
    """A row of any table, in a common format.

    Attributes:
        key: ``kind:name``, unique over all tables.
        aliases: Clinical synonyms and brand names; documents and queries use them.
        lay: Lay words; queries, titles and quotations in documents use them.
        facts: Phrases without final punctuation, by intent.
        special: Phrases that hold only for a patient group, by group.
        circle: Property that near neighbours share (department, drug kind, body part, kind of examination).
        links: Keys of entities of other tables that this one mentions.
        external: Whether it is a drug that is not swallowed.
        findings: Whether it is an examination that describes findings instead of giving a number.
    """

    key: str
    kind: str
    name: str
    aliases: tuple[str, ...]
    lay: tuple[str, ...]
    facts: Mapping[str, tuple[str, ...]]
    special: Mapping[str, tuple[str, ...]]
    groups: tuple[str, ...]
    circle: str
    links: frozenset[str]
    external: bool = False
    findings: bool = False

    def __hash__(self) -> int:
        return hash(self.key)


class World:
    """All entities, their cells and their relations."""

    def __init__(self, kb: Knowledge) -> None:
        self.groups: dict[str, PatientGroup] = {group.name: group for group in kb.groups}
        entities = [*_conditions(kb), *_drugs(kb), *_symptoms(kb), *_exams(kb)]
        self.entities: dict[str, Entity] = {entity.key: entity for entity in entities}

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Return every cell for which the tables hold facts, sorted."""
        cells: list[Cell] = []
        for entity in self.entities.values():
            cells += [Cell(entity.key, intent) for intent in INTENTS[entity.kind] if entity.facts.get(intent)]
            cells += [Cell(entity.key, SPECIAL_INTENT, group) for group in entity.special]
            if entity.kind == "condition":
                cells += [
                    Cell(entity.key, intent, group)
                    for group in _contrasting(entity)
                    for intent in GROUPED_INTENTS
                    if entity.facts.get(intent)
                ]
        return tuple(sorted(cells))

    @cached_property
    def _cells_by_entity(self) -> dict[str, list[Cell]]:
        grouped: dict[str, list[Cell]] = {}
        for cell in self.cells:
            grouped.setdefault(cell.entity, []).append(cell)
        return grouped

    def cells_of(self, entity: str) -> list[Cell]:
        """Return the cells of one entity, sorted."""
        return self._cells_by_entity[entity]

    def facts(self, cell: Cell) -> tuple[str, ...]:
        """Return the phrases that answer a cell."""
        entity = self.entities[cell.entity]
        return entity.special[cell.group] if cell.intent == SPECIAL_INTENT else entity.facts[cell.intent]

    def leaks(self, cell: Cell, phrases: tuple[str, ...]) -> set[Cell]:
        """Return the other cells of the same entity that these phrases answer in passing."""
        entity = self.entities[cell.entity]
        text = "；".join(phrases)
        intents = {
            intent
            for intent, pattern in _LEAK_PATTERNS.items()
            if entity.facts.get(intent) and intent in INTENTS[entity.kind] and pattern.search(text)
        }
        if entity.kind == "condition":
            if cell.intent != "drugs" and any(drug in text for drug in entity.facts.get("drugs", ())):
                intents.add("drugs")
            if cell.intent == "prognosis" and _OUTCOME_WORDS.search(text):
                intents.add("complications")
        if any(name in text for name in entity.facts.get("department", ())):
            intents.add("department")
        cells = {Cell(entity.key, intent) for intent in intents if intent != cell.intent}
        if cell.intent in _GROUP_LEAKS_FROM:
            cells |= {
                Cell(entity.key, SPECIAL_INTENT, group)
                for group in entity.special
                if _GROUP_WORDS[group].search(text)
            }
        return cells

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Return the related entities of the same kind, sorted, by entity."""
        keys = sorted(self.entities)
        return {
            key: tuple(
                other
                for other in keys
                if other != key
                and self.entities[other].kind == self.entities[key].kind
                and self.related(key, other)
            )
            for key in keys
        }

    def related(self, first: str, second: str) -> bool:
        """Return True if one entity links to the other, or if they share a circle or three links."""
        one, two = self.entities[first], self.entities[second]
        if one.key in two.links or two.key in one.links:
            return True
        if one.kind != two.kind:
            return False
        return one.circle == two.circle or len(one.links & two.links) >= 3


def _contrasting(entity: Entity) -> list[str]:
    """Return groups whose documents may state the general facts of a condition; at most one young group."""
    # A condition of a single patient group has no contrasting group.
    if any(set(entity.groups) <= only for only in _SINGLE_GROUPS) or _NAMES_GROUP.search(entity.name):
        return []
    groups = [group for group in CONTRAST_GROUPS if group in entity.groups]
    young = [group for group in groups if group in _YOUNG_GROUPS]
    # General advice suits the young only if they are the main patients.
    keep_young = young[:1] if entity.groups and entity.groups[0] in _YOUNG_GROUPS else []
    return keep_young + [group for group in groups if group not in _YOUNG_GROUPS]


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[，；,;]", text) if part)


def _special(raw: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {group: (text,) for group, text in raw.items()}


def _conditions(kb: Knowledge) -> list[Entity]:
    entities = []
    for row in kb.conditions:
        facts = {
            intent: (row.department,) if intent == "department" else getattr(row, intent)
            for intent in INTENTS["condition"]
        }
        links = {f"symptom:{name}" for name in row.symptoms}
        links |= {f"exam:{name}" for name in row.exams} | {f"drug:{name}" for name in row.drugs}
        entities.append(
            Entity(
                f"condition:{row.name}",
                "condition",
                row.name,
                row.aliases,
                row.lay,
                facts,
                _special(row.special),
                row.groups,
                row.department,
                frozenset(links),
            )
        )
    return entities


def _drugs(kb: Knowledge) -> list[Entity]:
    symptoms = {row.name for row in kb.symptoms}
    entities = []
    for row in kb.drugs:
        facts = {
            "indication": row.uses + row.indications,
            "missed": _split(row.missed),
            "storage": _split(row.storage),
        }
        facts |= {
            intent: getattr(row, intent)
            for intent in ("usage", "side_effects", "contraindications", "interactions")
        }
        links = {f"{'symptom' if name in symptoms else 'condition'}:{name}" for name in row.indications}
        entities.append(
            Entity(
                f"drug:{row.name}",
                "drug",
                row.name,
                row.brand,
                row.colloquial,
                facts,
                _special(row.special),
                (),
                row.kind,
                frozenset(links),
                external=not _ORAL_FORM.search(row.form),
            )
        )
    return entities


def _symptoms(kb: Knowledge) -> list[Entity]:
    return [
        Entity(
            f"symptom:{row.name}",
            "symptom",
            row.name,
            (),
            row.lay,
            {
                "reasons": row.reasons,
                "handling": row.handling,
                "alarm": row.alarm,
                "department": (row.department,),
            },
            {},
            (),
            row.body,
            frozenset(),
        )
        for row in kb.symptoms
    ]


def _exams(kb: Knowledge) -> list[Entity]:
    return [
        Entity(
            f"exam:{row.name}",
            "exam",
            row.name,
            (),
            row.lay,
            {intent: getattr(row, intent) for intent in INTENTS["exam"]},
            {},
            (),
            row.kind,
            frozenset(),
            findings=row.kind not in _NUMERIC_EXAM_KINDS and row.name not in _NUMERIC_EXAMS,
        )
        for row in kb.exams
    ]


def seeded(*parts: object) -> random.Random:
    """Return a random generator for one unit, so that adding a unit never changes another one.

    ``random.Random`` hashes a string seed with SHA-512, with the same result on every platform and Python
    version.
    """
    return random.Random("/".join(str(part) for part in parts))
