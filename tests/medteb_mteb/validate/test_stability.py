from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from medteb_mteb.validate.stability import kendall, order_of_systems

PAIRS = [f"q{i} {kind}{i}" for i in range(12) for kind in "pnu"]
TRUE = {pair: "S" if "p" in pair else "D" for pair in PAIRS}
#: Takes the document that the edition calls wrong for the right one.
CONTRARY = {pair: "S" if "n" in pair else "D" for pair in PAIRS}


@pytest.fixture
def runs(write_run):
    """Systems with the positive first, second, and third."""
    return [write_run("first", "pun"), write_run("second", "upn"), write_run("third", "nup")]


def test_tau_is_that_of_scipy():
    draw = np.random.default_rng(1)
    one, other = draw.normal(size=(50, 7)), draw.normal(size=(50, 7))
    expected = [kendalltau(a, b).statistic for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(kendall(one, other), expected, atol=1e-12)
    assert kendall(one, one).tolist() == [1.0] * 50
    assert kendall(one, -one).tolist() == [-1.0] * 50
    tied, other = np.array([[1.0, 1.0, 2.0, 2.0]]), np.array([[1.0, 2.0, 3.0, 3.0]])
    assert kendall(tied, other) == pytest.approx(kendalltau(tied[0], other[0]).statistic)
    assert kendall(tied, tied) == 1.0
    assert kendall(tied, np.zeros((1, 4))) == 0.0


def test_judges_that_agree_order_systems_alike(look, write_judgements, runs):
    path = write_judgements("judged", one=TRUE, two=TRUE, three=TRUE)
    finding = look(order_of_systems, judgements=path, runs=runs)
    assert finding.verdict == "ok"
    taus = {name: value for name, value in finding.numbers.items() if name.endswith(", tau")}
    # Six subsets of three judges, and three rules.
    assert len(taus) == 9
    assert set(taus.values()) == {1.0}
    assert finding.numbers["systems"] == 3
    assert finding.numbers["queries alone, tau, mean"] == 1.0
    assert {row[3] for row in finding.table.rows} == {"first"}


def test_a_contrary_judge_is_seen_alone_and_in_the_majority(look, write_judgements, runs):
    path = write_judgements("judged", one=TRUE, two=CONTRARY, three=CONTRARY)
    finding = look(order_of_systems, judgements=path, runs=runs)
    assert finding.verdict == "fail"
    assert finding.numbers["judges: one, tau"] == 1.0
    # The first two have the wrong document in the same place.
    expected = pytest.approx(kendalltau([3, 2, 1], [1, 1, 2]).statistic, abs=1e-4)
    assert finding.numbers["judges: two, tau"] == finding.numbers["rule: majority, tau"] == expected
    assert "judges: one, two, tau" not in finding.numbers  # no pair that both call right
    assert {row[0]: row[3] for row in finding.table.rows}["judges: two"] == "third"
    assert "the lowest tau is -0.8" in finding.reason


def test_an_order_that_some_queries_reverse_is_a_warning(look, write_judgements, runs):
    mixed = {pair: CONTRARY[pair] if int(pair.split()[0][1:]) < 3 else TRUE[pair] for pair in PAIRS}
    finding = look(order_of_systems, judgements=write_judgements("judged", one=TRUE, two=mixed), runs=runs)
    assert finding.verdict == "warning"
    row = {row[0]: row for row in finding.table.rows}["judges: two"]
    assert row[1] == "12"
    low, high = (float(part) for part in row[2].partition("[")[2].rstrip("]").split(","))
    assert low < finding.numbers["judges: two, tau"] <= high


def test_shallower_pools_give_other_labels(look, write_pools, runs):
    ranks = {"bm25": "p" + "n" * 1, "dense": "u"}
    finding = look(order_of_systems, pools=write_pools(**ranks), runs=runs)
    # The pools are one or two documents deep, less than the first depth.
    assert (finding.verdict, "neither judgements" in finding.reason) == ("not known", True)


def test_depths_are_those_of_the_pools(folder, look, tmp_path, runs):
    import json

    rows = [
        {"query-id": f"q{i}", "corpus-ids": [f"n{i}", f"p{i}"], "ranks": {"bm25": [1, 5 if i % 2 else 7]}}
        for i in range(12)
    ]
    path = tmp_path / "deep.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    finding = look(order_of_systems, pools=path, runs=runs)
    assert finding.verdict == "ok"
    assert [row[:2] for row in finding.table.rows] == [("depth: 5", "6")]  # half the positives lie deeper


def test_the_order_of_too_few_systems_is_not_known(look, write_judgements, write_pools, runs):
    path = write_judgements("judged", one=TRUE, two=TRUE)
    finding = look(order_of_systems, judgements=path, runs=runs[:2])
    assert (finding.verdict, "2 systems" in finding.reason) == ("not known", True)
    # The retrievers of the pools are systems, too.
    pools = write_pools(bm25="pu", dense="un")
    finding = look(order_of_systems, judgements=path, runs=runs[:1], pools=pools)
    assert finding.numbers["systems"] == 3
    assert look(order_of_systems, runs=runs).verdict == "not known"
