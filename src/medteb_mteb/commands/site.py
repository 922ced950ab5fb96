"""`medteb site`: results as a folder of pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mar_st.files import counted
from mar_st.options import Argument
from medteb_mteb.commands.compare import SourceSettings

if TYPE_CHECKING:
    from medteb_mteb.site import Outcome


class SiteSettings(SourceSettings):
    """Options of `medteb site`."""

    results: Annotated[tuple[Path, ...], Argument()] = Field(
        min_length=1,
        description="Folders of medteb run, mteb or HAKARI-Bench; rankings *.trec, *.run or *.json.",
    )
    out: Annotated[Path, Argument(last=True)] = Field(description="Folder to write the pages to.")
    about: Path | None = Field(
        None, description="YAML file of facts per system, such as latency_ms, parameters_online and family."
    )
    texts: bool = Field(
        False, description="Show texts also of data without an open licence, on pages that stay with you."
    )
    title: str | None = Field(None, min_length=1, description="Title of the pages.")


def site(settings: SiteSettings) -> Outcome:
    """Write results as a folder of pages that open in a browser, from a file or from any host.

    The pages show every score with its interval and tie group, comparisons of two systems, and, for rankings
    that were kept (`medteb run --trec`), the first ten documents of each query. They need no server and load
    nothing from elsewhere. Texts are shown only if the licence of the data is open. An earlier site in the
    same folder is replaced.
    """
    from medteb_mteb.compare.read import read_results  # lazy: scipy
    from medteb_mteb.site import read_about, write_site  # lazy: scipy, jinja2

    results = read_results(settings.results, data=settings.data, qrels=settings.qrels)
    about = read_about(settings.about, results.table.models)
    return write_site(results, settings.out, about=about, texts=settings.texts, title=settings.title)


def as_text(outcome: Outcome) -> str:
    """Return where the site is, and what it does not show."""
    size = f"{outcome.bytes / 1e6:.1f} MB"
    lines = [f"{counted(outcome.pages, 'page')}, {size}: open {outcome.out}/index.html"]
    if outcome.without_texts:
        names = ", ".join(outcome.without_texts)
        lines.append(f"without texts, since their licences do not allow it: {names} (--texts shows them)")
    return "\n".join(lines)
