"""Texts and settings of alignments that take seconds."""

from __future__ import annotations

from mar_st.spaces import AlignSettings
from mar_st.spaces.alignment import align

WORDS = ["头疼", "发热", "咳嗽", "感冒", "高血压", "医生", "吃药", "怎么办"]

QUERIES = [f"{a}{b}呢" for a in WORDS for b in WORDS[:5]]

DOCUMENTS = [f"{b}你好{a}吃什么药好" for a in WORDS for b in WORDS]

FAST = {"epochs": 4, "batch_size": 16, "learning_rate": 3e-3, "layers": 1, "max_length": 32}


def aligned(root, out="out", say=lambda line: None, **changes):
    """Align a student in a folder that holds `teacher`, `queries.jsonl` and `corpus.jsonl`."""
    settings = {
        "teacher": str(root / "teacher"), "out": root / out, "queries": root / "queries.jsonl",
        "texts": root / "corpus.jsonl", **FAST, **changes,
    }  # fmt: skip
    return align(AlignSettings(**settings), say=say)
