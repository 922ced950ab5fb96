"""`medteb validate`: check an edition as a reviewer would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.files import printable
from medteb_mteb.commands.editions import resolve
from medteb_mteb.report.page import to_markdown

if TYPE_CHECKING:
    from medteb_mteb.report.page import Page
    from medteb_mteb.validate.settings import ValidateSettings

__all__ = ["as_text", "validate"]


def validate(settings: ValidateSettings) -> Page:
    """Check the quality of an edition and print a report.

    The report has one page with a verdict, number and reason per point: files, rows, size and power,
    duplicates, judged share of a run, pool bias, judges, leaks and the licence. A point that the data
    cannot answer is "not known". The exit code is 1 if a point fails.
    """
    from medteb_mteb.validate.checks import validate as run  # lazy: scipy

    folder = Path(settings.edition).expanduser()
    return run(folder if folder.exists() else resolve(settings.edition).path, settings)


def as_text(page: Page) -> str:
    """Return the page as Markdown; it quotes texts of the edition, which may hold escapes of a terminal."""
    return "\n".join(map(printable, to_markdown(page).rstrip().split("\n")))
