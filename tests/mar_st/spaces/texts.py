"""Texts and settings of alignments that take seconds."""

from __future__ import annotations

from mar_st.spaces import AlignSettings

WORDS = ["头疼", "发热", "咳嗽", "感冒", "高血压", "医生", "吃药", "怎么办"]

QUERIES = [f"{a}{b}呢" for a in WORDS for b in WORDS[:5]]

DOCUMENTS = [f"{b}你好{a}吃什么药好" for a in WORDS for b in WORDS]

LONG = AlignSettings(
    epochs=60,
    batch_size=16,
    learning_rate=3e-3,
    layers=1,
    width=32,
    vocabulary=200,
    max_length=32,
    held_out=5,
)

FAST = AlignSettings(
    epochs=4, batch_size=16, learning_rate=3e-3, layers=1, width=32, vocabulary=200, max_length=32, held_out=5
)


def silent(line):
    del line
