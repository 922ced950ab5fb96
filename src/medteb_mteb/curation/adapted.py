"""Going away: the steps `anonymize`, `dedup` and `diversify`, until their rooms define them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from mar_st.options import Argument, Switch
from medteb_mteb.curation.files import run_step
from medteb_mteb.curation.step import Counts, Input, Model, Runtime, Step, StepSettings

__all__ = ["ANONYMIZE", "DEDUP", "DIVERSIFY"]


class TextsSettings(StepSettings):
    """Options of a step that turns texts into texts."""

    source: Annotated[Path, Argument("IN"), Input("texts")] = Field(alias="in", description="Texts.")
    columns: Annotated[dict[str, str], Switch("--column")] = Field(
        default_factory=dict, description="FIELD=COLUMN of id, text or title; may be repeated."
    )
    sources: Annotated[dict[str, str], Switch("--source")] = Field(
        default_factory=dict, description="NAME=LICENCE of a source of the texts; may be repeated."
    )


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


class DedupSettings(TextsSettings):
    """Options of the step."""

    threshold: float = Field(0.8, gt=0, le=1, description="Similarity from which a text is dropped.")
    width: int = Field(3, ge=1, description="Characters of an n-gram.")


def dedup(settings: DedupSettings) -> Counts:
    """Drop texts that nearly repeat an earlier one."""
    from medteb_mteb.curation.texts.near_duplicates import NearDuplicates  # lazy: going away

    work = NearDuplicates(settings.threshold, settings.width)
    return run_step(work, settings.source, settings.out, columns=settings.columns, sources=settings.sources)


class DiversifySettings(TextsSettings):
    """Options of the step."""

    kind: Literal["queries", "documents"] = Field(description="Kind of the texts.")
    model: Annotated[str, Model()] = Field(description="Embedding model.")
    threshold: float | None = Field(None, gt=-1, le=1, description="Similarity of neighbours.")
    k: int = Field(5, ge=1, description="Neighbours looked at.")
    tolerated: int = Field(1, ge=0, description="Neighbours tolerated.")
    seed_size: int = Field(5000, ge=0, description="Texts that are kept unseen.")
    store: Annotated[Path | None, Runtime()] = Field(None, description="Folder that keeps vectors.")
    batch_size: Annotated[int, Runtime()] = Field(64, ge=1, description="Texts per forward pass.")


def diversify(settings: DiversifySettings) -> Counts:
    """Drop texts that have too many near neighbours among earlier texts."""
    from mar_st.teachers.store import store_root  # lazy: going away
    from medteb_mteb.curation.diversify import THRESHOLDS, Encoded, Search, SelectionRule  # lazy: going away
    from medteb_mteb.curation.diversify.step import Diversify  # lazy: going away

    threshold = THRESHOLDS[settings.kind] if settings.threshold is None else settings.threshold
    vectors = Encoded(
        settings.model,
        settings.kind,
        settings.store or store_root(settings.out),
        batch_size=settings.batch_size,
    )
    rule = SelectionRule(threshold, settings.k, settings.tolerated, settings.seed_size)
    work = Diversify(vectors, rule, Search("exact", 0, 8))
    return run_step(work, settings.source, settings.out, columns=settings.columns, sources=settings.sources)


ANONYMIZE = Step("anonymize", AnonymizeSettings, anonymize, "texts", anonymises=True)
DEDUP = Step("dedup", DedupSettings, dedup, "texts")
DIVERSIFY = Step("diversify", DiversifySettings, diversify, "texts")
