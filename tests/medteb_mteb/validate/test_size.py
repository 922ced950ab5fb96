from __future__ import annotations

import statistics

import pytest

from medteb_mteb.curation.labels.intervals import smallest_difference
from medteb_mteb.validate import size as module
from medteb_mteb.validate.size import size


def test_the_smallest_difference_decides(look, monkeypatch):
    finding = look(size)
    assert finding.verdict == "fail"
    key = "smallest detectable difference in nDCG@10"
    # 1.95996 + 0.84162 standard errors of 0.3 / sqrt(12).
    assert finding.numbers[key] == pytest.approx(0.2426, abs=1e-4)
    assert finding.numbers["positives"] == finding.numbers["judged negatives"] == 12
    assert "assumed" in finding.reason
    monkeypatch.setattr(module, "USABLE_DIFFERENCE", 0.3)
    assert look(size).verdict == "warning"
    monkeypatch.setattr(module, "FINE_DIFFERENCE", 0.3)
    assert look(size).verdict == "ok"


def test_the_number_of_queries_needed_is_stated(look):
    needed = int(look(size).reason.rpartition("; ")[2].partition(" ")[0])
    assert smallest_difference(needed) <= 0.05 < smallest_difference(needed - 1)


@pytest.mark.parametrize("few", [6, 2])
def test_runs_that_are_alike_do_not_strengthen_a_test(look, write_run, few):
    finding = look(size, runs=[write_run("good", "pun"), write_run("bad", "unp", range(few))])
    # So many queries differ by 1 - 1/2, the others by 1 - 0.
    differences = [0.5] * few + [1.0] * (12 - few)
    deviation = statistics.stdev(differences)
    key = "standard deviation of differences, of the runs"
    assert finding.numbers[key] == pytest.approx(deviation, abs=1e-4)
    assert "assumed" in finding.reason
    assert f"a difference of {smallest_difference(12):.3f}" in finding.reason


def test_runs_that_differ_more_weaken_a_test(look, write_run):
    finding = look(size, runs=[write_run("good", "pun"), write_run("half", "p", range(6))])
    deviation = statistics.stdev([0.0] * 6 + [1.0] * 6)
    assert f"a difference of {smallest_difference(12, deviation):.3f}" in finding.reason
    assert "measured on the runs" in finding.reason


def test_without_negatives_their_number_is_not_known(look, folder):
    (folder / "judged_negatives.tsv").unlink()
    assert look(size).numbers["judged negatives"] is None
