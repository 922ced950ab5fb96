"""Figures whose labels may be Chinese."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib", reason="figures need the report extra")
import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.text import Text

from mar_st.files.figures import drawn, font_families


@pytest.fixture
def fonts(monkeypatch):
    """Names of the installed fonts besides matplotlib's own."""

    def install(*names):
        own = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
        monkeypatch.setattr(
            font_manager.fontManager, "ttflist", [*own, *(SimpleNamespace(name=n) for n in names)]
        )

    return install


def draw(path, title):
    with drawn(path, 2, 1, dpi=20) as figure:
        figure.suptitle(title)
    return figure


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ((), ["DejaVu Sans"]),
        (("Arial", "SimSun"), ["DejaVu Sans", "SimSun"]),
        (("SimSun", "Noto Sans CJK JP"), ["DejaVu Sans", "Noto Sans CJK JP"]),
    ],
)
def test_a_chinese_font_follows_the_default_one(fonts, installed, expected):
    fonts(*installed)
    assert font_families() == expected


def test_labels_fall_back_to_the_chinese_font_and_settings_of_the_caller_stay(tmp_path, monkeypatch, caplog):
    # A font that matplotlib ships stands in for one with Chinese characters.
    monkeypatch.setattr("mar_st.files.figures._CHINESE_FONTS", ("STIXGeneral",))
    before = mpl.rcParams["font.family"]
    figure = draw(tmp_path / "a.png", "内科")
    assert {tuple(text.get_fontfamily()) for text in figure.findobj(Text)} == {("DejaVu Sans", "STIXGeneral")}
    assert mpl.rcParams["font.family"] == before
    assert not caplog.records


@pytest.mark.parametrize(
    ("title", "warned"), [("内科 internal medicine", True), ("internal medicine", False)]
)
def test_without_a_chinese_font_one_warning_names_the_file_and_the_remedy(
    fonts, tmp_path, caplog, title, warned
):
    fonts()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib would warn of every character
        draw(tmp_path / "a.png", title)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert [("a.png" in record.message, "fonts-noto-cjk" in record.message) for record in caplog.records] == (
        [(True, True)] if warned else []
    )


def test_an_error_while_drawing_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def failing():
        with drawn(path, 2, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failing()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
