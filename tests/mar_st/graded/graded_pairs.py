"""Graded pairs that a tiny cross-encoder learns in seconds."""

from __future__ import annotations

from mar_st.graded import GradedPair, GraderSettings

#: The label depends only on the document, not on the query.
DOCUMENTS = {0: "感冒发热", 2: "咳嗽怎么办", 4: "高血压医生你好"}
HOW = GraderSettings(
    max_length=24, epochs=12, batch_size=16, learning_rate=2e-2, calibration=0.3, folds=3, save_steps=5
)


def pairs(queries=24):
    return [
        GradedPair(f"头疼{number}", text, label)
        for number in range(queries)
        for label, text in DOCUMENTS.items()
    ]
