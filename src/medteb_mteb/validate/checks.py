"""The points of a validation, in the order of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.report.page import Page
from medteb_mteb.validate.contents import (
    card,
    duplicate_documents,
    duplicate_queries,
    files,
    leaks,
    rows,
    size,
)
from medteb_mteb.validate.judges import accuracy_of_labels, agreement_of_judges, position_bias
from medteb_mteb.validate.systems import holes, order_of_systems, pool_bias

if TYPE_CHECKING:
    from collections.abc import Callable

    from medteb_mteb.report.page import Finding
    from medteb_mteb.validate.material import Material

#: The points, in the order of the page.
CHECKS: tuple[Callable[[Material], Finding], ...] = (
    files, rows, size, duplicate_queries, duplicate_documents, holes, pool_bias, agreement_of_judges,
    position_bias, order_of_systems, accuracy_of_labels, leaks, card,
)  # fmt: skip


def check(material: Material) -> Page:
    """Return the verdict of every check."""
    edition = material.layout.edition
    which = f"edition {edition.name} {edition.version}" if edition else "no manifest"
    return Page(
        title=f"Validation of {material.layout.name}",
        subject=f"{material.kind}, {which}, data {material.layout.revision()}.",
        findings=tuple(one(material) for one in CHECKS),
    )
