"""Overlap of a test with training data."""

from __future__ import annotations

from medteb_mteb.curation.texts.split import overlap


def test_leaks_are_counted_equal_and_near():
    training = ["感冒了怎么办？", "糖尿病能吃西瓜吗", "多喝水，注意休息。"]
    queries, documents = ["感冒怎么办", "糖尿病能吃西瓜吗？", "湿疹痒"], ["多喝水 注意休息", "外用药膏"]
    assert overlap(queries, documents, training) == {
        "queries": 3,
        "equal": 1,
        "near": 2,
        "documents": 2,
        "equal_documents": 1,
        "examples": [("糖尿病能吃西瓜吗？", "糖尿病能吃西瓜吗"), ("感冒怎么办", "感冒了怎么办？")],
    }
    assert overlap(["湿疹痒"], [], training)["near"] == 0
