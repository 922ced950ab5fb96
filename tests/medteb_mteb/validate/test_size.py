from __future__ import annotations

import pytest

from medteb_mteb.build.intervals import smallest_difference
from medteb_mteb.validate import size as module
from medteb_mteb.validate.size import size


def test_the_smallest_difference_decides(look, monkeypatch):
    found = look(size)
    assert found.verdict == "fail"
    key = "smallest detectable difference in nDCG@10"
    assert found.numbers[key] == pytest.approx(smallest_difference(12), abs=1e-4)
    assert found.numbers["positives"] == found.numbers["judged negatives"] == 12
    assert "assumed" in found.reason
    monkeypatch.setattr(module, "USABLE", 0.3)
    assert look(size).verdict == "warning"
    monkeypatch.setattr(module, "FINE", 0.3)
    assert look(size).verdict == "ok"


def test_so_many_queries_would_do(look):
    needed = int(look(size).reason.rpartition("; ")[2].partition(" ")[0])
    assert smallest_difference(needed) <= 0.05 < smallest_difference(needed - 1)


def test_two_runs_give_the_deviation_of_their_differences(look, write_run):
    runs = [write_run("good", "pun"), write_run("bad", "unp", range(6))]
    found = look(size, runs=runs)
    # Six queries differ by 1 - 1/2, six by 1 - 0.
    differences = [0.5] * 6 + [1.0] * 6
    mean = sum(differences) / 12
    deviation = (sum((x - mean) ** 2 for x in differences) / 11) ** 0.5
    assert found.numbers["standard deviation of differences"] == pytest.approx(deviation, abs=1e-4)
    assert "measured on the runs" in found.reason


def test_without_negatives_their_number_is_not_known(look, folder):
    (folder / "judged_negatives.tsv").unlink()
    assert look(size).numbers["judged negatives"] is None
