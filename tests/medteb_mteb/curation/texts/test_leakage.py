"""Overlap of a test with training data."""

from __future__ import annotations

from medteb_mteb.curation.texts.leakage import leakage


def test_leaks_are_counted_equal_and_near():
    training = ["感冒了怎么办？", "糖尿病能吃西瓜吗", "多喝水，注意休息。"]
    report = leakage(
        ["感冒怎么办", "糖尿病能吃西瓜吗？", "湿疹痒"], ["多喝水 注意休息", "外用药膏"], training
    )
    assert (report.queries, report.equal, report.near) == (3, 1, 2)
    assert (report.documents, report.equal_documents) == (2, 1)
    assert report.examples == (("糖尿病能吃西瓜吗？", "糖尿病能吃西瓜吗"), ("感冒怎么办", "感冒了怎么办？"))
    assert leakage(["湿疹痒"], [], training).near == 0
