from __future__ import annotations

import pytest

from medteb_mteb.curation.labels.agreement import agreement
from medteb_mteb.curation.labels.grades import read_judgements
from medteb_mteb.validate.judges import agreement_of_judges, self_consistency

PAIRS = [f"q{i} {kind}{i}" for i in range(10) for kind in "pn"]
TRUE = {pair: "S" if "p" in pair else "D" for pair in PAIRS}


def changed(number, **grades):
    """The true grades with some of them inverted."""
    return {
        pair: ("D" if grade == "S" else "S") if place < number else grade
        for place, (pair, grade) in enumerate(TRUE.items())
    } | grades


@pytest.mark.thorough(but=["0-ok"])
@pytest.mark.parametrize(("number", "verdict"), [(0, "ok"), (5, "warning"), (9, "fail")])
def test_the_verdict_depends_on_krippendorffs_alpha(look, write_judgements, number, verdict):
    path = write_judgements("judged", one=TRUE, two=changed(number))
    finding = look(agreement_of_judges, judgements=path)
    assert finding.verdict == verdict
    expected = agreement(read_judgements(path)).labels["krippendorff_alpha"].value
    assert finding.numbers["krippendorff alpha of labels"] == pytest.approx(expected, abs=1e-4)
    assert (finding.numbers["judges"], finding.numbers["pairs"]) == (2, 20)


def test_judgements_of_other_queries_do_not_count(look, write_judgements):
    other = {"training t1": "S"}
    path = write_judgements("judged", one=TRUE | other, two=TRUE | {"training t1": "D"})
    assert look(agreement_of_judges, judgements=path).numbers["agreement of labels"] == 1.0


def test_agreement_is_not_known_with_fewer_than_two_judges(look, write_judgements):
    assert look(agreement_of_judges).verdict == "not known"
    finding = look(agreement_of_judges, judgements=write_judgements("judged", one=TRUE))
    assert (finding.verdict, "at least two judges" in finding.reason) == ("not known", True)
    alike = dict.fromkeys(PAIRS, "S")
    finding = look(agreement_of_judges, judgements=write_judgements("judged", one=alike, two=alike))
    assert (finding.verdict, finding.reason) == ("not known", "all labels are of one kind")


@pytest.mark.thorough
def test_each_judge_is_compared_with_itself(look, write_judgements):
    first = write_judgements("first", steady=TRUE, moody=TRUE, once=TRUE)
    again = write_judgements("second", steady=TRUE, moody=changed(5))
    finding = look(self_consistency, judgements=first, second=again)
    assert finding.verdict == "fail"
    assert finding.numbers["steady, equal labels"] == 1.0
    assert finding.numbers["moody, equal labels"] == 0.75
    assert [row[:2] for row in finding.table.rows] == [("moody", "20"), ("steady", "20")]
    assert finding.reason.startswith("moody gives 75.0% of its pairs the same label")


def test_letters_may_differ_where_labels_do_not(look, write_judgements):
    first = write_judgements("first", one=TRUE)
    again = write_judgements(
        "second", one={pair: {"S": "A", "D": "D"}[grade] for pair, grade in TRUE.items()}
    )
    finding = look(self_consistency, judgements=first, second=again)
    assert finding.verdict == "ok"
    assert (finding.numbers["one, equal labels"], finding.numbers["one, equal letters"]) == (1.0, 0.5)


def test_consistency_is_not_known_without_repeated_judgements(look, write_judgements):
    first, other = write_judgements("first", one=TRUE), write_judgements("second", two=TRUE)
    assert look(self_consistency, judgements=first).verdict == "not known"
    finding = look(self_consistency, judgements=first, second=other)
    assert (finding.verdict, "same pair twice" in finding.reason) == ("not known", True)


def test_a_judge_that_guesses_among_negatives_does_not_pass(look, write_judgements):
    """By the share of equal labels alone it would pass."""
    pairs = [f"q{i % 12} {kind}{j}" for i in range(12) for j in range(12) for kind in "pnu"]
    first = {pair: "S" if place in (10, 200) else "D" for place, pair in enumerate(pairs)}
    second = {pair: "S" if place in (40, 300) else "D" for place, pair in enumerate(pairs)}
    finding = look(
        self_consistency,
        judgements=write_judgements("first", blind=first),
        second=write_judgements("second", blind=second),
    )
    assert finding.numbers["blind, equal labels"] > 0.95
    assert finding.numbers["blind, weighted kappa"] < 0.1
    assert finding.verdict == "fail"
    assert "weighted kappa of its letters" in finding.reason


def test_each_judge_has_its_kappa_with_the_others(look, write_judgements):
    path = write_judgements("judged", one=TRUE, two=TRUE, odd=changed(8))
    finding = look(agreement_of_judges, judgements=path)
    assert finding.numbers["weighted kappa of odd with the others, letters"] == pytest.approx(0.2)
    one = finding.numbers["weighted kappa of one with the others, labels"]
    assert 0.2 < one < 1
    assert finding.table.rows[-1][0] == "weighted kappa of two with the others"
