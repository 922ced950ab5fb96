"""`medteb validate`: check an edition as a reviewer would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.commands.editions import resolve
from medteb_mteb.validate import ValidateSettings

if TYPE_CHECKING:
    from medteb_mteb.report.page import Page

__all__ = ["ValidateSettings", "as_text", "validate"]


def validate(settings: ValidateSettings) -> Page:
    """Check the quality of an edition and print a report.

    The report has one page with a verdict, number and reason per point: files, rows, size and power,
    duplicates, judged share of a run, pool bias, judges, leaks and the licence. A point that the data
    cannot answer is "not known". The exit code is 1 if a point fails.
    """
    from medteb_mteb.validate.checks import check  # lazy: scipy
    from medteb_mteb.validate.material import read_material  # lazy: scipy

    folder = Path(settings.edition).expanduser()
    return check(read_material(folder if folder.exists() else resolve(settings.edition).path, settings))


def as_text(page: Page) -> str:
    """Return the page as Markdown."""
    from medteb_mteb.report.page import to_markdown  # lazy: scipy

    return to_markdown(page).rstrip()
