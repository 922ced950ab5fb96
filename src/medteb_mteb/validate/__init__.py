"""Validation of a retrieval edition as a reviewer would do it: a verdict, number and reason per point."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.options import Argument, Settings, Switch
from medteb_mteb.editions import edition_folder

if TYPE_CHECKING:
    from medteb_mteb.report.page import Page


class ValidateSettings(Settings):
    """Options of `medteb validate`."""

    edition: Annotated[str, Argument()] = Field(
        description="Task name, or retrieval or reranking folder in the Hub layout."
    )
    runs: Annotated[tuple[str, ...], Switch("--run")] = Field(
        ("bm25-char-bigram",),
        description="Run (TREC, JSON, mteb's predictions), bm25-char-bigram or bm25-jieba; may be repeated.",
    )
    build: Path | None = Field(
        None, description="Folder of the build that made the edition, with pools, judgements, training sets."
    )
    review: Path | None = Field(None, description="Folder of 'medteb review' with answers of experts.")
    against: tuple[str, ...] = Field(
        (), description="Training set that must not contain test queries; may be repeated."
    )


def validate(settings: ValidateSettings) -> Page:
    """Check the quality of an edition and print a report.

    The report has one page with a verdict, number and reason per point: files, rows, size and power,
    duplicates, judged share of a run, pool bias, judges, leaks and the licence. A point that the data
    cannot answer is "not known". The exit code is 1 if a point fails.
    """
    from medteb_mteb.folders.content import detect_type  # lazy: pyarrow
    from medteb_mteb.report.page import Page  # lazy: scipy
    from medteb_mteb.validate import contents, labels  # lazy: scipy
    from medteb_mteb.validate.material import read_material  # lazy: scipy

    checks = (
        contents.files, contents.rows, contents.size, contents.duplicate_queries,
        contents.duplicate_documents, labels.holes, labels.pool_bias, labels.agreement_of_judges,
        labels.position_bias, labels.order_of_systems, labels.accuracy_of_labels, contents.leaks,
        contents.card,
    )  # fmt: skip
    material = read_material(edition_folder(settings.edition), settings)
    edition = material.layout.edition
    which = f"edition {edition.name} {edition.version}" if edition else "no manifest"
    return Page(
        title=f"Validation of {material.layout.name}",
        subject=f"{detect_type(material.layout)}, {which}, data {material.layout.revision()}.",
        findings=tuple(one(material) for one in checks),
    )


def as_text(page: Page) -> str:
    """Return the page as Markdown."""
    from medteb_mteb.report.page import to_markdown  # lazy: scipy

    return to_markdown(page).rstrip()
