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
from medteb_mteb.validate.judges import (
    accuracy_of_labels,
    agreement_of_judges,
    position_bias,
    self_consistency,
)
from medteb_mteb.validate.material import read_material
from medteb_mteb.validate.systems import holes, order_of_systems, pool_bias

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from medteb_mteb.report.page import Finding
    from medteb_mteb.validate.material import Material
    from medteb_mteb.validate.settings import ValidateSettings

__all__ = ["CHECKS", "validate"]

#: The points, in the order of the page.
CHECKS: tuple[Callable[[Material], Finding], ...] = (
    files, rows, size, duplicate_queries, duplicate_documents, holes, pool_bias, agreement_of_judges,
    self_consistency, position_bias, order_of_systems, accuracy_of_labels, leaks, card,
)  # fmt: skip


def validate(folder: Path, settings: ValidateSettings) -> Page:
    """Read an edition, or any retrieval or reranking folder, and return the verdict of every check.

    Raises:
        FolderError: The folder is unusable or of another type.
        MarError: Other material is unusable.
    """
    material = read_material(folder, settings)
    edition = material.layout.edition
    which = f"edition {edition.name} {edition.version}" if edition else "no manifest"
    return Page(
        title=f"Validation of {material.layout.name}",
        subject=f"{material.kind}, {which}, data {material.layout.revision()}.",
        findings=tuple(check(material) for check in CHECKS),
    )
