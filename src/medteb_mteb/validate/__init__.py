"""Validation of a retrieval edition as a reviewer would do it: a verdict, number and reason per point."""

from __future__ import annotations

from medteb_mteb.validate.checks import CHECKS, validate
from medteb_mteb.validate.findings import Finding, Report, Table
from medteb_mteb.validate.material import Material, Sources, read_material
from medteb_mteb.validate.page import to_html, to_markdown

__all__ = [
    "CHECKS",
    "Finding",
    "Material",
    "Report",
    "Sources",
    "Table",
    "read_material",
    "to_html",
    "to_markdown",
    "validate",
]
