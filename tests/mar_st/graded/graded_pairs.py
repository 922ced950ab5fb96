"""Graded pairs that a tiny cross-encoder learns in seconds."""

from __future__ import annotations

from mar_st.graded.train import GradedPair, GraderSettings
from tests.conftest import write_jsonl

#: The label depends only on the document, not on the query.
DOCUMENTS = {0: "感冒发热", 2: "咳嗽怎么办", 4: "高血压医生你好"}
HOW = {"max_length": 24, "epochs": 12, "batch_size": 16, "learning_rate": 2e-2}


def pairs(queries=24):
    return [
        GradedPair(f"头疼{number}", text, label)
        for number in range(queries)
        for label, text in DOCUMENTS.items()
    ]


def settings(rows, base, out, **changes):
    """Settings of a training on rows, which are written beside the result."""
    data = write_jsonl(out.parent / "graded.jsonl", [row._asdict() for row in rows])
    return GraderSettings(data=[data], base=str(base), out=out, **{**HOW, **changes})
