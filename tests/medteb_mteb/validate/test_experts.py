from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.validate import Sources, read_material
from medteb_mteb.validate.experts import corrected_mean, precision_of_systems


def test_without_errors_the_corrected_mean_is_that_of_the_labels():
    labels = [[1, 0], [1, 1], [0, 0], [1, 0]]
    estimate = corrected_mean(labels, {1: [1] * 40, 0: [0] * 40})
    assert estimate.judged == estimate.value == 0.5
    assert estimate.low < 0.5 < estimate.high
    # More experts, a narrower interval.
    more = corrected_mean(labels, {1: [1] * 4000, 0: [0] * 4000})
    assert more.high - more.low < estimate.high - estimate.low


def test_a_systematic_error_is_corrected():
    labels = [[1, 1], [1, 1], [1, 0]]
    estimate = corrected_mean(labels, {1: [1, 0] * 50, 0: [0] * 100})
    assert estimate.value == pytest.approx(5 / 6 / 2)
    assert corrected_mean([[1], [1]], {1: [1, 1, 0, 0], 0: []}).value == 0.5


@pytest.mark.thorough
def test_intervals_cover_the_truth_at_their_nominal_rate():
    draw, inside, by_labels = np.random.default_rng(2), 0, 0
    for _ in range(400):
        truth = draw.random((150, 10)) < 0.4
        labels = np.where(draw.random(truth.shape) < np.where(truth, 0.3, 0.1), ~truth, truth).astype(int)
        sampled = {one: draw.choice(truth[labels == one], 60, replace=False).astype(int) for one in (0, 1)}
        estimate = corrected_mean(labels.tolist(), sampled)
        inside += estimate.low <= 0.4 <= estimate.high
        by_labels += abs(estimate.judged - 0.4) <= (estimate.high - estimate.low) / 2
    assert inside / 400 > 0.92
    assert by_labels < inside


@pytest.fixture
def sheet(tmp_path):
    """A sheet over the positives and negatives of the folder, and a file with an expert's answers."""

    def write(confirmed):
        pairs = [(f"q{i}", f"{kind}{i}", label) for i in range(12) for kind, label in (("p", 1), ("n", 0))]
        rows = [
            {"row": n, "query-id": q, "corpus-id": d, "label": label}
            for n, (q, d, label) in enumerate(pairs, 1)
        ]
        content = {"seed": 1, "labelled": {"positive": 12, "negative": 12}, "rows": rows}
        (tmp_path / "sheet.key.json").write_text(json.dumps(content), encoding="utf-8")
        with (tmp_path / "answers.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["row", "query", "document", "answer", "comment"])
            for number, (query, _, label) in enumerate(pairs, 1):
                right = label if not label or int(query[1:]) < confirmed else 0
                writer.writerow([number, "", "", "是" if right else "否", ""])
        return {"review": tmp_path / "sheet.csv", "answered": (tmp_path / "answers.csv",)}

    return write


def test_experts_that_confirm_the_labels_leave_precision_unchanged(look, sheet, write_run):
    finding = look(precision_of_systems, runs=[write_run("one", "pnu")], **sheet(12))
    assert finding.verdict == "ok"
    assert (
        finding.numbers["one, judged precision@10"] == finding.numbers["one, corrected precision@10"] == 0.5
    )
    assert finding.table.rows[0][1] == "12 + 12"


def test_experts_that_reject_positives_give_a_warning(look, sheet, write_run):
    runs = [write_run("one", "pnu"), write_run("other", "nu")]
    finding = look(precision_of_systems, runs=runs, **sheet(6))
    assert finding.verdict == "warning"
    assert finding.numbers["one, corrected precision@10"] == 0.25
    assert finding.numbers["other, corrected precision@10"] == 0.0
    assert "experts move precision@10 of one by 0.250" in finding.reason


def test_precision_is_not_known_with_too_few_answers(look, sheet, write_run, folder):
    assert look(precision_of_systems).verdict == "not known"
    few = look(precision_of_systems, runs=[write_run("one", "pnu", queries=range(3))], **sheet(12))
    assert (few.verdict, "fewer than 5" in few.reason) == ("not known", True)
    with pytest.raises(BuildError, match="together"):
        read_material(folder, Sources(review=sheet(12)["review"]))
