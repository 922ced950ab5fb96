"""Cross-encoders that may judge: their labels are the grades of the scale."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import LearnedJudge
from medteb_mteb.curation.judge.grader import open_grader


@pytest.fixture
def opened(tmp_path):
    """Opens a folder with these thresholds."""

    def call(content):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (tmp_path / "thresholds.json").write_bytes(data)
        return open_grader(LearnedJudge(name="甲", cross_encoder=str(tmp_path), batch_size=3))

    return call


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4], [0, 4], [1, 3]])
def test_labels_within_the_scale_are_accepted(opened, labels):
    bounds = [float(number) for number in range(len(labels) - 1)]
    grader = opened({"labels": labels, "bounds": bounds})
    assert grader.thresholds.label([-1.0, 99.0]).tolist() == [labels[0], labels[-1]]


@pytest.mark.parametrize(
    ("labels", "given"), [([0, 5], "0 up to 5"), ([-1, 0], "-1 up to 0"), ([-7, 9], "-7 up")]
)
def test_labels_outside_the_scale_are_refused(opened, labels, given):
    with pytest.raises(
        BuildError, match=f"Judge 甲: .* gives labels from {given}.*0 for D to 4 for S. Train it"
    ):
        opened({"labels": labels, "bounds": [0.5]})


@pytest.mark.parametrize(
    "content",
    [
        {"labels": ["0", "1"], "bounds": [0.5]},
        {"labels": [0, 1], "bounds": [None]},
        {"labels": [0, 1], "bounds": [float("nan")]},
        {"labels": [0, 1]},
        [],
        b"",
        b"{",
        b"\xff\xfe{",
        b"[" * 100_000,
    ],
)
def test_broken_thresholds_are_refused_with_the_judge(opened, tmp_path, content):
    with pytest.raises(BuildError, match=r"^Judge 甲: .*thresholds") as error:
        opened(content)
    assert str(tmp_path) in str(error.value)
    assert len(str(error.value)) < 500


def test_a_folder_without_thresholds_is_refused(tmp_path):
    with pytest.raises(BuildError, match=r"Judge 甲: .*none holds no thresholds\.json"):
        open_grader(LearnedJudge(name="甲", cross_encoder=str(tmp_path / "none")))
