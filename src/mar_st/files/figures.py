"""Figures as PNG files, whose labels may be Chinese."""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mar_st.files.writing import finished

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["drawn", "font_families"]

logger = logging.getLogger(__name__)

#: Fonts with Chinese characters, in order of preference; matplotlib's own font has none. matplotlib reads the
#: first font of a collection, which is the Japanese one of Noto Sans CJK.
_CHINESE_FONTS = (
    "Noto Sans SC", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "Source Han Sans CN",
    "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC", "PingFang HK",
    "Hiragino Sans GB", "Heiti TC", "STHeiti", "Microsoft YaHei", "SimHei", "SimSun", "Arial Unicode MS",
)  # fmt: skip
_CHINESE = re.compile(r"[⺀-鿿豈-﫿︰-﹏＀-￯\U00020000-\U0003ffff]")


@contextmanager
def drawn(path: Path, width: float, height: float, *, dpi: int = 150) -> Iterator[Any]:
    """Give a `matplotlib` figure to draw on, and save it when the context ends without an error.

    The file has no date and no version, so the same numbers and fonts give the same bytes. Chinese labels
    need a font with such characters; without one they are empty boxes and a warning is logged.

    Args:
        path: PNG file to write.
        width: Width in inches.
        height: Height in inches.
        dpi: Pixels per inch.

    Raises:
        ImportError: matplotlib is not installed.
    """
    families = font_families()
    with import_module("matplotlib").rc_context({"font.family": families}):
        figure = import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
        yield figure
        with finished(path) as part, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing")  # one for each character
            figure.savefig(part, format="png", dpi=dpi, metadata={"Software": None})
        texts = figure.findobj(import_module("matplotlib.text").Text)
    if len(families) == 1 and any(_CHINESE.search(text.get_text()) for text in texts):
        logger.warning(
            "%s: no font with Chinese characters was found, so they are empty boxes. Install one, such as "
            "fonts-noto-cjk, delete matplotlib's list of fonts (%s/fontlist-*.json), and draw it again.",
            path,
            import_module("matplotlib").get_cachedir(),
        )


def font_families() -> list[str]:
    """Return matplotlib's default font, and after it an installed font with Chinese characters, if any.

    Raises:
        ImportError: matplotlib is not installed.
    """
    installed = {font.name for font in import_module("matplotlib.font_manager").fontManager.ttflist}
    return ["DejaVu Sans", *[name for name in _CHINESE_FONTS if name in installed][:1]]
