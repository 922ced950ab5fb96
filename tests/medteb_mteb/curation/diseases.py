"""Subjects of made-up texts, which rule-based judges tell apart by their words."""

from __future__ import annotations

DISEASES = (
    "感冒", "高血压", "糖尿病", "偏头痛", "胃炎", "湿疹", "哮喘", "肺炎", "痛风", "贫血", "便秘", "失眠",
)  # fmt: skip
