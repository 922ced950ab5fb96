"""How much of a ranking was judged: known, unknown, or not in an old result."""

from __future__ import annotations

import pytest

from medteb_mteb.report.holes import HEADERS, Holes

SCORES = {"judged_at_10": 0.136, "bpref": 0.25, "condensed_ndcg_at_10": 0.658, "ndcg_at_10": 0.1}


def test_measures_stand_in_the_order_of_their_headers():
    cells = dict(zip(HEADERS, Holes.of_scores(SCORES, known=True).cells(), strict=True))
    assert cells == {"judged@10": "13.6%", "condensed nDCG@10": "0.6580", "bpref": "0.2500"}


def test_measures_mean_nothing_if_the_judged_pairs_are_unknown():
    holes = Holes.of_scores(SCORES, known=False)
    assert holes.cells() == ["not known", "-", "-"]
    assert holes.to_json() == {
        "judged_at_10": None, "bpref": None, "condensed_ndcg_at_10": None,
        "note": "not known: the data list no judged negatives",
    }  # fmt: skip
    assert holes.warning() == ""


def test_an_old_result_says_how_to_get_the_measures():
    holes = Holes.of_scores({"ndcg_at_10": 0.3, "bpref": None}, known=True)
    assert holes.to_json()["note"] == "not in the saved result; run again with --overwrite"
    assert holes.warning() == ""


def test_nothing_retrieved_has_no_share_and_keeps_the_other_measures():
    holes = Holes.of_scores({"judged_at_10": None, "bpref": 0, "condensed_ndcg_at_10": 0}, known=True)
    assert holes.cells() == ["not known", "0.0000", "0.0000"]
    assert holes.to_json() == {
        "judged_at_10": None, "bpref": 0.0, "condensed_ndcg_at_10": 0.0, "note": None,
    }  # fmt: skip


@pytest.mark.parametrize(("judged", "warned"), [(0, True), (0.799, True), (0.8, False), (1, False)])
def test_too_few_judged_documents_are_warned_of(judged, warned):
    warning = Holes.of_scores(SCORES | {"judged_at_10": judged}, known=True).warning()
    assert bool(warning) == warned
    assert ("medteb edition extend" in warning) == warned
