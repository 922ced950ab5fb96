"""Figures: names of any characters, missing values, and the same bytes for the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from medteb_mteb.report.figures import draw_label_map, draw_similarities, draw_sources, draw_time
from medteb_mteb.report.saved import TimedScore
from medteb_mteb.report.vectors import LabelMap, Similarities

pytest.importorskip("matplotlib", reason="figures need the report extra")

#: What matplotlib would read as a formula, a broken one, or a line to be left out of the legend.
NAMES = ["$x^2$", r"a $\nosuch$ b", "$$", "50% of $5", "_hidden", "^_{}\\", "plain"]


def label_map(labels):
    points = np.random.default_rng(0).standard_normal((len(labels), 2)).astype(np.float32)
    return LabelMap(points, labels, 5.0)


DRAW = {
    "sources": lambda path, names=("a", "b"): draw_sources(
        {name: {"Wiki": 0.2, name: 0.7} for name in names}, path
    ),
    "time": lambda path, names=("a", "b"): draw_time(
        {name: TimedScore(2.0 + i, 0.5, 3) for i, name in enumerate(names)}, path
    ),
    "labels": lambda path, names=("a", "b"): draw_label_map(label_map([*names, *names]), names[0], path),
}


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    """Saves small figures, and collects their texts as a reader sees them."""
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    texts = []
    save = Figure.savefig

    def small(figure, *where, **options):
        texts.extend(one.get_text().replace(r"\$", "$") for one in figure.findobj(Text))
        save(figure, *where, **options | {"dpi": 15})

    monkeypatch.setattr(Figure, "savefig", small)
    return texts


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    for name in ("one.png", "two.png"):
        DRAW["labels"](tmp_path / name)
    content = (tmp_path / "one.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content == (tmp_path / "two.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "two.png"]


@pytest.mark.parametrize("kind", ["sources", "time", "labels"])
def test_names_of_any_characters_are_drawn_as_they_are(tmp_path, shown, kind):
    DRAW[kind](tmp_path / "f.png", NAMES)
    assert set(NAMES) <= set(shown)


def test_the_title_and_the_model_of_a_panel_are_drawn_as_they_are(tmp_path, shown):
    pairs = Similarities(np.array([0.9, 0.5]), np.array([0.1, 0.4]))
    draw_similarities({NAMES[0]: pairs}, NAMES[1], tmp_path / "f.png")
    assert NAMES[1] in shown
    assert f"{NAMES[0]}: a positive is nearer with probability 1.000" in shown


def test_a_source_that_a_model_lacks_is_an_empty_cell(tmp_path, shown):
    draw_sources({"a": {"Wiki": 0.25, "Trials": 0.5}, "b": {"Trials": 0.75}}, tmp_path / "f.png")
    assert {"0.25", "0.50", "0.75"} <= set(shown)
    assert "nan" not in shown


def test_a_long_label_is_cut(tmp_path, shown):
    draw_label_map(label_map(["x" * 41, "b"] * 2), "t", tmp_path / "f.png")
    assert "x" * 40 in shown
    assert "x" * 41 not in shown


def test_an_error_leaves_the_old_figure(tmp_path):
    (tmp_path / "f.png").write_bytes(b"old")
    (tmp_path / "f.png.part").mkdir()
    with pytest.raises(OSError, match=r"f\.png\.part"):
        DRAW["time"](tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes() == b"old"
