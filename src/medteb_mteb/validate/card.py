"""Check that the licence and the origin of the data are stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.editions import mappings
from medteb_mteb.folders.layout import card_header
from medteb_mteb.validate.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["MIN_CARD_CHARACTERS", "card"]

#: Characters of prose below which a card does not say how data were made.
MIN_CARD_CHARACTERS = 200
_NO_LICENCE = ("", "unknown", "other", "none", "not specified")
#: Parts of identifiers that forbid commercial use or changed copies.
_RESTRICTED_PARTS = ("nc", "nd")


def card(material: Material) -> Finding:
    """Check licence and provenance, as the card and the manifest state them."""
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
        reason = "no licence is stated, so the data may not be used or shared; add it to the card's header"
        return Finding(key, title, "fail", reason, numbers)
    sources = mappings(edition.extra, "sources") if edition else []
    if wrong := _sources(sources, licence):
        numbers["sources of the texts"] = len(sources)
        return Finding(key, title, "warning", f"licence {licence}; {wrong}", numbers)
    if len(prose) < MIN_CARD_CHARACTERS:
        reason = (
            f"licence {licence}; the card has {len(prose)} characters and does not say how the data were made"
        )
        return Finding(key, title, "warning", reason, numbers)
    return Finding(key, title, "ok", f"licence {licence}, a card of {len(prose):,} characters", numbers)


def _sources(sources: Sequence[Mapping[str, Any]], licence: str) -> str:
    """Return the problem with the licences of the texts' sources; empty without problem or sources."""
    for one in sources:
        name, its = one.get("name"), str(one.get("licence", ""))
        if its.lower() in _NO_LICENCE:
            return f"the licence of the source {name} is not known; ask its authors before sharing texts"
        for part in _RESTRICTED_PARTS:
            if part in its.lower().split("-") and part not in licence.lower().split("-"):
                wanted = "give the edition a licence that holds for all its texts"
                return f"the source {name} has {its}, which restricts more; {wanted}"
    return ""


def _prose(path: Path) -> str:
    """Return the card without its header and its tables."""
    text = path.read_text(encoding="utf-8-sig")
    if text.startswith("---"):
        text = text[3:].partition("\n---")[2]
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("|"))
    return " ".join(" ".join(lines).split())
