"""Going away: the steps `anonymize`, `dedup` and `diversify`, until their rooms define them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from medteb_mteb.curation.files import TextsSettings, run_step
from medteb_mteb.curation.step import Counts, Input, Runtime, Step

__all__ = ["ANONYMIZE"]


class AnonymizeSettings(TextsSettings):
    """Options of the step."""

    mode: Literal["placeholder", "surrogate"] = Field("placeholder", description="What replaces a name.")
    kinds: tuple[str, ...] | None = Field(None, description="Kinds of identifiers; default: all.")
    keep_meta: tuple[str, ...] = Field((), description="Further column to keep, anonymised.")
    ids: Literal["check", "keep", "digest"] = Field("check", description="Treatment of ids.")
    known: Annotated[Path | None, Input("file")] = Field(None, description="Known identifiers.")
    strict: bool = Field(False, description="Also replace doubtful identifiers.")
    reviewed: Annotated[Path | None, Input("file")] = Field(None, description="Sheet with answers.")
    salt: Annotated[Path | None, Runtime()] = Field(None, description="File of the secret of surrogates.")


def anonymize(settings: AnonymizeSettings) -> Counts:
    """Replace identifiers of persons in texts."""
    from dataclasses import replace  # lazy: going away

    from medteb_mteb.curation.anonymize.known import read_known  # lazy: going away
    from medteb_mteb.curation.anonymize.salt import salt_for  # lazy: going away
    from medteb_mteb.curation.anonymize.sheet import read_sheet  # lazy: going away
    from medteb_mteb.curation.anonymize.step import Anonymise  # lazy: going away

    known = read_known(settings.known) if settings.known else None
    answers = read_sheet(settings.reviewed) if settings.reviewed else None
    private = settings.mode == "surrogate" or known is not None or answers is not None
    salt = settings.salt or settings.out.parent / "surrogates.salt"
    work = Anonymise(
        mode=settings.mode,
        kinds=settings.kinds,
        salt=salt_for(settings.out, salt) if private else None,
        keep_meta=settings.keep_meta,
        ids=settings.ids,
        id_label=settings.columns.get("id", ""),
        known=known,
        strict=settings.strict,
        answers=answers,
    )
    counts = run_step(work, settings.source, settings.out, columns=settings.columns, sources=settings.sources)
    own = {"version": work.settings()["version"], "strict": settings.strict}
    return replace(counts, provenance={**counts.provenance, "anonymisers": [own]})


ANONYMIZE = Step("anonymize", AnonymizeSettings, anonymize, "texts", anonymises=True)
