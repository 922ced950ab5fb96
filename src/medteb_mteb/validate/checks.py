"""The points of a validation, in the order of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.validate.accuracy import accuracy_of_labels
from medteb_mteb.validate.bias import length_bias, position_bias
from medteb_mteb.validate.card import card
from medteb_mteb.validate.duplicates import duplicate_documents, duplicate_queries
from medteb_mteb.validate.expert_lengths import length_bias_by_experts
from medteb_mteb.validate.experts import precision_of_systems
from medteb_mteb.validate.files import files, identifiers, positives, rows
from medteb_mteb.validate.findings import Report
from medteb_mteb.validate.judges import agreement_of_judges, self_consistency
from medteb_mteb.validate.leaks import leaks
from medteb_mteb.validate.pooling import holes, pool_bias
from medteb_mteb.validate.size import size
from medteb_mteb.validate.slices import slices
from medteb_mteb.validate.stability import order_of_systems

if TYPE_CHECKING:
    from collections.abc import Callable

    from medteb_mteb.validate.findings import Finding
    from medteb_mteb.validate.material import Material

__all__ = ["CHECKS", "validate"]

CHECKS: tuple[Callable[[Material], Finding], ...] = (
    files,
    rows,
    identifiers,
    positives,
    size,
    duplicate_queries,
    duplicate_documents,
    holes,
    pool_bias,
    agreement_of_judges,
    self_consistency,
    position_bias,
    length_bias,
    length_bias_by_experts,
    order_of_systems,
    accuracy_of_labels,
    precision_of_systems,
    leaks,
    slices,
    card,
)


def validate(material: Material) -> Report:
    """Return the verdict of every check."""
    edition = material.layout.edition
    return Report(
        name=material.layout.name,
        kind=material.kind,
        edition=f"{edition.name} {edition.version}" if edition else "",
        revision=material.layout.revision(),
        findings=tuple(check(material) for check in CHECKS),
    )
