from __future__ import annotations

import random

from medteb_mteb.curation.nano.candidates import hybrid_lists, safeguard


def test_ranks_are_fused_with_k_100_and_ties_go_by_id():
    one = {"q": ["a", "b", "c"]}
    two = {"q": ["c", "z", "a", "y"]}
    # c: 1/103 + 1/101, a: 1/101 + 1/103: equal, as are their best ranks; then b and z at rank 2, y at 4
    assert hybrid_lists([one, two], {"q": ["a"]}, "s") == {"q": ["a", "c", "b", "z", "y"]}
    far = {"q": [f"n{i}" for i in range(99)] + ["x"]}
    near = {"q": ["m", "x"]}
    # at k = 100 two lists count for x (1/200 + 1/102 > 1/101 + 1/199 = two other documents' sums)
    fused = hybrid_lists([far, near], {"q": ["x"]}, "s")["q"]
    assert fused[0] == "x"
    assert hybrid_lists([far, near], {"q": ["x"]}, "s", k=1)["q"][0] == "m"


def test_a_list_without_a_positive_ends_with_one():
    lists = {q: [f"d{i}" for i in range(200)] for q in ("found", "missed", "last")}
    qrels = {"found": ["d3", "d150"], "missed": ["d150", "d120", "x"], "last": ["d99"]}
    fused = hybrid_lists([lists], qrels, "medical")
    assert [len(fused[q]) for q in qrels] == [100, 101, 100]
    assert fused["missed"][:100] == [f"d{i}" for i in range(100)]
    assert fused["missed"][100] == safeguard(qrels["missed"], "medical", "missed")
    assert len(hybrid_lists([lists], qrels, "medical", size=50)["last"]) == 51


def test_the_safeguard_follows_from_its_seed_string():
    positives = ["d2", "d1", "d3"]
    for query in map(str, range(30)):
        expected = random.Random(f"20260524\0medical\0{query}\0positive_safeguard").choice(["d1", "d2", "d3"])
        assert (
            safeguard(positives, "medical", query) == safeguard(positives[::-1], "medical", query) == expected
        )
    drawn = {safeguard(positives, split, str(q)) for split in ("a", "b") for q in range(30)}
    assert drawn == set(positives)
