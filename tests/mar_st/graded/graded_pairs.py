"""Graded pairs that a tiny cross-encoder learns in seconds."""

from __future__ import annotations

import json

from mar_st.graded.train import GradedPair, GraderSettings

#: The label depends only on the document, not on the query.
DOCUMENTS = {0: "感冒发热", 2: "咳嗽怎么办", 4: "高血压医生你好"}
HOW = {
    "max_length": 24, "epochs": 12, "batch_size": 16, "learning_rate": 2e-2,
}  # fmt: skip


def pairs(queries=24):
    return [
        GradedPair(f"头疼{number}", text, label)
        for number in range(queries)
        for label, text in DOCUMENTS.items()
    ]


def settings(rows, base, out, **changes):
    """Settings of a training on rows, which are written beside the result."""
    out.parent.mkdir(parents=True, exist_ok=True)
    data = out.parent / "graded.jsonl"
    data.write_text("".join(json.dumps(row._asdict(), ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return GraderSettings(data=[data], base=str(base), out=out, **{**HOW, **changes})
