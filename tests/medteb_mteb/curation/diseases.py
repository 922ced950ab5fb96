"""Subjects of made-up texts, which rule-based judges tell apart by their words."""

from __future__ import annotations

DISEASES = (
    "感冒", "高血压", "糖尿病", "偏头痛", "胃炎", "湿疹", "哮喘", "肺炎", "痛风", "贫血", "便秘", "失眠",
)  # fmt: skip

#: Another word for a subject, as in a dictionary of synonyms.
SYNONYMS = {
    "感冒": "伤风",
    "高血压": "血压高",
    "糖尿病": "消渴症",
    "偏头痛": "头痛病",
    "哮喘": "喘病",
    "痛风": "风痛",
    "肺炎": "肺病",
    "贫血": "血虚",
    "便秘": "便结",
}
