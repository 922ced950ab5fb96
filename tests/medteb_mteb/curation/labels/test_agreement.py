from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mar_st.errors import MarError
from medteb_mteb.curation.labels.agreement import agreement, fleiss_kappa, gwet_ac1, krippendorff_alpha
from medteb_mteb.curation.labels.grades import Judgement

# Fourteen raters, ten subjects, five categories (Fleiss' kappa 0.210).
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip

# Four observers, twelve units, some values missing (alpha 0.743 nominal, 0.815 ordinal, 0.849 interval).
KRIPPENDORFF = [
    "123321412...", "1233224125.3", ".3332342251.", "12332441251.",
]  # fmt: skip


def krippendorff_counts():
    table = np.zeros((12, 5), dtype=int)
    for rater in KRIPPENDORFF:
        for unit, value in enumerate(rater):
            if value != ".":
                table[unit, int(value) - 1] += 1
    return table


def test_fleiss_kappa_is_that_of_the_textbook():
    assert fleiss_kappa(np.array(FLEISS)) == pytest.approx(0.210, abs=5e-4)


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorff_alpha_is_that_of_the_textbook(level, alpha):
    assert krippendorff_alpha(krippendorff_counts(), level) == pytest.approx(alpha, abs=5e-4)


def test_gwet_ac1_stays_high_where_kappa_collapses():
    table = np.array([[2, 0]] * 118 + [[1, 1]] * 7)
    assert gwet_ac1(table) == pytest.approx(0.9408, abs=5e-5)
    assert fleiss_kappa(table) < 0


def test_coefficients_of_three_categories_are_the_published_ones():
    """From the manual of Gwet's R package irrCAC: two abstractors of 100 pregnancies; kappa is Scott's pi."""
    table = np.repeat([[2, 0, 0], [0, 2, 0], [0, 1, 1], [0, 0, 2]], [13, 20, 7 + 4, 56], axis=0)
    assert gwet_ac1(table) == pytest.approx(0.8493305, abs=1e-7)
    assert fleiss_kappa(table) == pytest.approx(0.7962397, abs=1e-7)
    assert krippendorff_alpha(table) == pytest.approx(0.7972585, abs=1e-7)


def test_gwet_ac1_takes_the_mean_shares_of_items_with_unequal_numbers_of_ratings():
    """Of the values 1 to 5 the shares, added up over 12 units, are 3, 3.25, 3.5, 1.25 and 1.

    So chance agrees in (1 - 34.375 / 144) / 4 = 0.19032, and the observers do in 9 of the 11 units with two
    values or more: in 8 wholly, in two by half, in one not at all.
    """
    assert gwet_ac1(krippendorff_counts()) == pytest.approx(0.77544, abs=5e-6)


def test_fleiss_kappa_leaves_out_items_with_missing_ratings():
    """Eight units have all four values: a 1, 2, 3 and 4 are 4, 13, 10 and 5 of the 32.

    So chance agrees in 310 / 32 ** 2, and the observers do in 6 of the eight.
    """
    assert fleiss_kappa(krippendorff_counts()) == pytest.approx((768 - 310) / (1024 - 310))


@pytest.mark.parametrize("coefficient", [fleiss_kappa, gwet_ac1, krippendorff_alpha])
def test_items_without_two_ratings_do_not_count(coefficient):
    counts = krippendorff_counts()
    more = np.vstack([counts, np.zeros((3, 5), dtype=int)])
    assert coefficient(more) == pytest.approx(coefficient(counts))
    assert np.isnan(coefficient(np.eye(3, dtype=int)))


def naive_alpha(counts, distance):
    """Alpha from every pair of ratings, without matrices."""
    units = [[c for c, n in enumerate(row) for _ in range(n)] for row in counts.tolist()]
    units = [unit for unit in units if len(unit) > 1]
    values = [value for unit in units for value in unit]
    observed = sum(
        distance(a, b) / (len(unit) - 1)
        for unit in units
        for (i, a), (j, b) in product(enumerate(unit), enumerate(unit))
        if i != j
    )
    expected = sum(
        distance(a, b) for (i, a), (j, b) in product(enumerate(values), enumerate(values)) if i != j
    )
    return 1 - (observed / len(values)) / (expected / (len(values) * (len(values) - 1)))


@pytest.mark.parametrize("seed", range(4))
def test_alpha_is_that_of_all_pairs_of_ratings(seed):
    counts = np.random.default_rng(seed).integers(0, 3, size=(20, 4))
    assert krippendorff_alpha(counts) == pytest.approx(naive_alpha(counts, lambda a, b: float(a != b)))
    interval = krippendorff_alpha(counts, "interval")
    assert interval == pytest.approx(naive_alpha(counts, lambda a, b: float((a - b) ** 2)))


def test_one_category_alone_has_no_coefficient():
    table = np.array([[3, 0]] * 5)
    assert np.isnan(fleiss_kappa(table))
    assert np.isnan(krippendorff_alpha(table))
    assert gwet_ac1(table) == 1.0


def test_agreement_needs_pairs_of_two_judges():
    for other in ([], [Judgement("q", "e", "乙", "S")]):
        with pytest.raises(MarError, match="two judges"):
            agreement([Judgement("q", "d", "甲", "S"), *other])


def ordinal_alpha(counts, weights=None):
    return krippendorff_alpha(counts, "ordinal", weights)


@pytest.mark.parametrize("coefficient", [fleiss_kappa, gwet_ac1, krippendorff_alpha, ordinal_alpha])
def test_weighting_an_item_equals_repeating_it(coefficient):
    draw = np.random.default_rng(3)
    counts = draw.multinomial(3, [0.4, 0.3, 0.2, 0.1], size=40)
    counts[:5, 0] = np.maximum(counts[:5, 0] - 1, 0)  # some have fewer ratings
    times = draw.integers(0, 4, size=40)
    naive = coefficient(np.repeat(counts, times, axis=0))
    assert coefficient(counts, weights=times) == pytest.approx(naive, abs=1e-12)
    assert coefficient(counts) != pytest.approx(naive, abs=1e-6)


def test_intervals_are_those_of_resampled_queries():
    draw = np.random.default_rng(5)
    judgements = [
        Judgement(f"q{q}", f"d{d}", judge, draw.choice(list("SABCD"), p=[0.3, 0.3, 0.2, 0.1, 0.1]))
        for q in range(12)
        for d in range(5)
        for judge in ("a", "b")
    ]
    estimate = agreement(judgements).labels["gwet_ac1"]
    grades = {(j.query_id, j.document_id, j.judge): j.grade in "SA" for j in judgements}
    items = np.array(
        [[(s := sum(grades[f"q{q}", f"d{d}", j] for j in "ab")), 2 - s] for q in range(12) for d in range(5)]
    ).reshape(12, 5, 2)
    values = [gwet_ac1(items[draw.integers(0, 12, 12)].reshape(-1, 2)) for _ in range(2000)]
    low, high = np.quantile(values, [0.025, 0.975])
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.03)


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("other", "SD")
def test_agreement_or_disagreement_on_all_pairs_is_not_certain(queries, other):
    """Four queries that agree leave room for a true agreement of 40 %: 0.025 ** (1 / 4)."""
    both = (("a", "S"), ("b", other))
    given = [Judgement(f"q{i}", f"d{j}", *one) for i in range(queries) for j in (0, 1) for one in both]
    estimate = agreement(given).labels["agreement"]
    least = 0.025 ** (1 / queries)
    expected = (1, least, 1) if other == "S" else (0, 0, 1 - least)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(expected)


def test_intervals_of_two_queries_end_at_resamples_with_one_of_them_twice_or_both():
    """Each of the three has more than 2.5 % of the resamples, so the ends are the least and the largest."""
    given = {"q1": ("SS", "SA", "DD", "SD"), "q2": ("DD", "AC")}
    estimates = agreement(
        Judgement(query, f"d{i}", judge, grade)
        for query, pairs in given.items()
        for i, pair in enumerate(pairs)
        for judge, grade in zip("ab", pair, strict=True)
    ).labels
    assert (estimates["agreement"].low, estimates["agreement"].high) == pytest.approx((1 / 2, 3 / 4))
    one, two = np.array([[0, 2], [0, 2], [2, 0], [1, 1]]), np.array([[2, 0], [1, 1]])
    for coefficient in (fleiss_kappa, krippendorff_alpha, gwet_ac1):
        values = [coefficient(np.concatenate(drawn)) for drawn in ((one, one), (one, two), (two, two))]
        estimate = estimates[coefficient.__name__]
        assert (estimate.low, estimate.high) == pytest.approx((min(values), max(values)))


def test_kappa_never_takes_pairs_with_fewer_grades_in_a_resample():
    """Only the pairs of the first query have all three grades; the others have two and disagree."""
    given = [
        Judgement("q1", f"d{place}", judge, grade)
        for place, grades in enumerate(("SSS", "DDD", "SSD"))
        for judge, grade in zip("abc", grades, strict=True)
    ]
    given += [Judgement(f"q{i}", "d", judge, grade) for i in (2, 3) for judge, grade in ("aS", "bD")]
    kappa = agreement(given).labels["fleiss_kappa"]
    assert kappa.low == pytest.approx(kappa.value)
    assert kappa.high == pytest.approx(kappa.value)
    assert kappa.value > 0


def textbook_judgements():
    """Krippendorff's observers as judges A to D of twelve queries; their values 1 to 5 are grades D to S."""
    return [
        Judgement(f"q{unit:02}", "d", judge, "DCBAS"[int(digit) - 1])
        for judge, row in zip("ABCD", KRIPPENDORFF, strict=True)
        for unit, digit in enumerate(row)
        if digit != "."
    ]


@pytest.fixture(scope="module")
def textbook():
    return agreement(textbook_judgements())


def test_a_pair_with_one_grade_is_not_compared(textbook):
    assert (textbook.pairs, textbook.judges) == (11, ["A", "B", "C", "D"])


def test_alpha_of_grades_takes_them_as_ordered_and_other_coefficients_do_not(textbook):
    values = {name: estimate.value for name, estimate in textbook.grades.items()}
    assert values == pytest.approx(
        {"agreement": 9 / 11, "fleiss_kappa": 458 / 714, "krippendorff_alpha": 0.815, "gwet_ac1": 0.77544},
        abs=5e-4,
    )


def test_missing_grades_are_no_negative_labels(textbook):
    """Positive are one of four grades of the sixth unit, all four of the seventh and all three of the tenth.

    Kappa: in 8 complete units 5 of 32, by chance (5 ** 2 + 27 ** 2) / 32 ** 2. Alpha: 8 of 40 grades make
    2 * 8 * 32 / (40 * 39) by chance, and the sixth unit 2 / 40. AC1: the mean share of positives is 3 / 16.
    """
    values = {name: estimate.value for name, estimate in textbook.labels.items()}
    assert values == pytest.approx(
        {
            "agreement": 21 / 22,
            "fleiss_kappa": 206 / 270,
            "krippendorff_alpha": 1 - 78 / 512,
            "gwet_ac1": 1830 / 1958,
        }
    )


def test_the_positive_grades_decide_labels_and_rates(textbook):
    measured = agreement(textbook_judgements(), positive=("S", "A", "B"))
    assert measured.positive_rate == pytest.approx({"A": 3 / 9, "B": 5 / 11, "C": 6 / 10, "D": 5 / 11})
    # One of four is positive in the second unit: 3 of 6 pairs of judges agree. In the sixth two are: 2 of 6.
    assert measured.labels["agreement"].value == pytest.approx((9 + 1 / 2 + 1 / 3) / 11)
    assert measured.grades == textbook.grades


def test_an_undefined_coefficient_is_null_in_the_json():
    given = [Judgement(f"q{i}", "d", judge, "S") for i in range(3) for judge in "ab"]
    estimates = agreement(given).to_json()["labels"]
    assert estimates["fleiss_kappa"] == estimates["krippendorff_alpha"] == [None, None, None]
    assert estimates["gwet_ac1"][0] == 1.0
