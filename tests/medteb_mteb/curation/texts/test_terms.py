from __future__ import annotations

import random
import time

import pytest

from medteb_mteb.curation.texts.terms import Terms, fold


def naive(terms, text):
    """Every term at every place; the longest first, then the first."""
    folded = fold(text)
    every = [
        (start, start + len(term), term)
        for term in {fold(term) for term in terms}
        for start in range(len(folded) - len(term) + 1)
        if folded.startswith(term, start)
    ]
    kept = []
    for start, end, term in sorted(every, key=lambda match: (match[0] - match[1], match[0])):
        if not any(start < other_end and other < end for other, other_end, _ in kept):
            kept.append((start, end, term))
    return sorted(kept)


def matches(terms, text):
    return [(f.start, f.end, f.term) for f in Terms(terms).find(text)]


@pytest.mark.parametrize("seed", range(20))
def test_found_terms_equal_a_search_at_every_position(seed):
    rng = random.Random(seed)
    letters = "高血压糖尿病足"
    terms = {"".join(rng.choices(letters, k=rng.randint(1, 4))) for _ in range(30)}
    for _ in range(20):
        text = "".join(rng.choices(letters, k=30))
        assert matches(terms, text) == naive(terms, text)


def test_the_longest_counts_wherever_it_begins():
    assert matches(["糖尿病", "糖尿病足"], "糖尿病足能治吗，糖尿病呢") == [
        (0, 4, "糖尿病足"),
        (8, 11, "糖尿病"),
    ]
    assert matches(["急性胃", "胃肠炎症"], "急性胃肠炎症") == [(2, 6, "胃肠炎症")]


@pytest.mark.parametrize(
    ("term", "text", "occurs"),
    [
        ("CT", "做ct疼吗", True),
        ("CT", "做ＣＴ疼吗", True),
        ("ct", "ACTH高怎么办", False),
        ("维生素B", "维生素B12能长期吃吗", False),
        ("维生素B", "维生素b能长期吃吗", True),
        ("2型糖尿病", "12型糖尿病", False),
        ("B超", "做了2次B超正常吗", True),
    ],
)
def test_latin_words_are_whole(term, text, occurs):
    assert bool(Terms([term]).find(text)) is occurs


def test_places_are_those_of_the_text():
    # ﷺ becomes many characters in NFKC, İ two in lower case; places would shift behind them.
    text = "İﷺ㎎ ＨＰＶ阳性怎么办"
    (place,) = Terms(["hpv阳性"]).find(text)
    assert text[place.start : place.end] == "ＨＰＶ阳性"
    assert len(fold(text)) == len(text)


def test_overlapping_terms_are_all_returned():
    overlapping = Terms(["急性胃", "胃肠炎", "胃肠炎症"]).every("急性胃肠炎症")
    assert sorted((f.start, f.end) for f in overlapping) == [(0, 3), (2, 5), (2, 6)]


@pytest.mark.thorough
def test_the_time_grows_with_the_length_of_the_text():
    text = "高血压。糖尿病足" * 12_500
    start = time.process_time()
    assert len(Terms(["高血压", "糖尿病", "血压", "尿病足", "糖尿病足"]).find(text)) == 25_000
    assert time.process_time() - start < 5
