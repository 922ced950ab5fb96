"""May the data be used, and does the card say where they come from?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.folders.layout import card_header
from medteb_mteb.validate.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["FEWEST_CHARACTERS", "card"]

#: Characters of prose below which a card does not say how data were made.
FEWEST_CHARACTERS = 200
_NO_LICENCE = ("", "unknown", "other", "none", "not specified")


def card(material: Material) -> Finding:
    """Licence and provenance, as the card and the manifest state them."""
    key, title = "card", "Licence and provenance are stated"
    folder, edition = material.layout.path, material.layout.edition
    header = card_header(folder)
    prose = _prose(folder / "README.md") if (folder / "README.md").is_file() else ""
    stated = str(header.get("license") or "")
    licence = (edition.licence if edition else stated) or ""
    numbers: dict[str, Number] = {
        "licence": licence or None,
        "licence in the card": stated or None,
        "characters of the card": len(prose),
        "manifest says": ", ".join(edition.extra) or None if edition else None,
    }
    if edition and stated and stated.lower() != edition.licence.lower():
        reason = f"the card says {stated}, the manifest {edition.licence}"
        return Finding(key, title, "fail", reason, numbers)
    if licence.lower() in _NO_LICENCE:
        reason = "no licence is stated, so nobody may use or pass on the data; add it to the card's header"
        return Finding(key, title, "fail", reason, numbers)
    if len(prose) < FEWEST_CHARACTERS:
        reason = (
            f"licence {licence}; the card has {len(prose)} characters and does not say how the data were made"
        )
        return Finding(key, title, "warning", reason, numbers)
    return Finding(key, title, "ok", f"licence {licence}, a card of {len(prose):,} characters", numbers)


def _prose(path: Path) -> str:
    """The card without its header and its tables."""
    text = path.read_text(encoding="utf-8-sig")
    if text.startswith("---"):
        text = text[3:].partition("\n---")[2]
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("|"))
    return " ".join(" ".join(lines).split())
