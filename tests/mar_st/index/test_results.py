from __future__ import annotations

import json

import pytest

from mar_st.index.results import Hit, Hits, Leg, fuse, one_leg


def test_fusion_is_the_sum_of_reciprocal_ranks():
    fused = fuse({"dense": (["a", "b", "c"], [0.9, 0.8, 0.7]), "bm25": (["c", "d", "a"], [5.0, 4.0, 3.0])})
    assert [document.key for document in fused] == ["a", "c", "b", "d"]
    assert fused[0].score == pytest.approx(1 / 61 + 1 / 63)
    assert fused[2].score == fused[3].score == pytest.approx(1 / 62)
    assert fused[1].legs == {"dense": Leg(3, 0.7), "bm25": Leg(1, 5.0)}
    assert fused[3].legs == {"bm25": Leg(2, 4.0)}


def test_one_leg_keeps_its_order():
    assert [(one.key, one.score, one.legs) for one in one_leg("dense", [7, 5], [0.5, 0.25])] == [
        (7, 0.5, {"dense": Leg(1, 0.5)}),
        (5, 0.25, {"dense": Leg(2, 0.25)}),
    ]


def test_a_hit_is_json():
    hit = Hit("d1", 0.5, 1, "题", "文…", {"year": 2020}, {"dense": Leg(1, 0.5)}, text="文章")
    assert json.loads(json.dumps(hit.to_json())) == {
        "id": "d1", "score": 0.5, "rank": 1, "title": "题", "snippet": "文…", "metadata": {"year": 2020},
        "legs": {"dense": {"rank": 1, "score": 0.5}},
    }  # fmt: skip
    assert hit.to_json(text=True)["text"] == "文章"
    assert "文章" not in repr(hit)


def test_hits_hold_the_score_of_the_nearest_document():
    hit = Hit("d1", 0.5, 1, "", "", {}, {}, text="")
    assert list(Hits([hit], nearest=0.25)) == [hit]
    assert Hits([hit], nearest=0.25).nearest == 0.25
    assert Hits().nearest is None
