"""Accessibility checks: the rules of axe-core, if it is installed, and contrasts from a style sheet."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

#: Rules of WCAG 2.2, levels A and AA, and what axe-core takes for good practice.
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def axe_core() -> Path | None:
    """The script of axe-core: `$AXE_CORE`, or what `npm install axe-core` leaves in this checkout."""
    named = os.environ.get("AXE_CORE")
    path = Path(named) if named else Path(__file__).parents[4] / "node_modules" / "axe-core" / "axe.min.js"
    return path if path.is_file() else None


def violations(page: Any, script: Path) -> list[tuple[str, str]]:
    """Rules that a page breaks as it stands, each with the first element that does."""
    page.evaluate(script.read_text(encoding="utf-8"))
    results = page.evaluate(f"axe.run({{runOnly: {_RULES}}})")
    return [(rule["id"], str(rule["nodes"][0]["target"])) for rule in results["violations"]]


def colours(style: str) -> dict[str, dict[str, str]]:
    """The variables of a style sheet by colour scheme, `light` and `dark`."""
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in blocks)
    return {"light": light, "dark": {**light, **dark}}


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours (WCAG 2.2, relative luminance)."""
    bright, dim = sorted(map(_luminance, (first, second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
