"""Tests of the plot of a study."""

from __future__ import annotations

import itertools

import pytest

from mar_st.study.plot import plot

pytest.importorskip("matplotlib")
from matplotlib.image import imread


def drawn(folder, label):
    """The pixels of a plot of two rows, `(height, width)`, from 0 (black) to 1."""
    average = {"mean": 0.5, "low": 0.4, "high": 0.6, "seeds": [0.5]}
    row = {"name": "full", "label": "MAR", "group": "a", "scores": {"average": average}, "cost": {}}
    path = folder / "plot.png"
    plot({"full": "full", "rows": [row, {**row, "name": "other", "label": label}]}, path)
    return imread(path)[..., :3].mean(axis=2)


def frame(pixels):
    """The length of the longest dark horizontal line as a share of the width: the frame of the scores."""
    runs = (sum(1 for _ in run) for line in pixels < 0.2 for dark, run in itertools.groupby(line) if dark)
    return max(runs) / pixels.shape[1]


def test_a_long_label_leaves_room_for_the_scores(tmp_path):
    label = (
        "MAR, vectors of token pairs, mean of the weights before and after the joint stage, all texts, twice"
    )
    assert frame(drawn(tmp_path, label)) > 0.4


def test_the_same_numbers_give_the_same_file(tmp_path):
    drawn(tmp_path, "two layers")
    first = (tmp_path / "plot.png").read_bytes()
    drawn(tmp_path, "two layers")
    assert (tmp_path / "plot.png").read_bytes() == first
