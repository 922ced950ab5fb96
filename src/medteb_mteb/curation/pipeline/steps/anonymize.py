"""Step `anonymize`: replaces identifiers of persons in texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from medteb_mteb.curation.anonymize.step import anonymize
from medteb_mteb.curation.files.sources import TextSource  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.pipeline.base import Input, PipelineStep, Texts
from medteb_mteb.curation.pipeline.registry import step
from medteb_mteb.curation.pipeline.work import StepOutcome, counts_of

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.work import StepJob


@step("anonymize")
class AnonymizeStep(PipelineStep):
    """Options of an anonymize step, as of `medteb anonymize`."""

    WRITES = "texts"
    ANONYMISES = True
    source: Texts = Field(alias="in")
    mode: Literal["placeholder", "surrogate"] = "placeholder"
    kinds: tuple[str, ...] | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    #: None does not count as a setting, so that builds of earlier versions stay as they are.
    sources: tuple[TextSource, ...] | None = None
    keep_meta: tuple[str, ...] = ()
    ids: Literal["check", "keep", "digest"] = "check"
    known: Annotated[str | None, Input(("file",))] = None
    strict: bool = False
    reviewed: Annotated[str | None, Input(("file",))] = None

    def run(self, job: StepJob) -> StepOutcome:
        """Anonymise the texts."""
        done = anonymize(
            job.path("in"),
            job.folder,
            mode=self.mode,
            kinds=self.kinds,
            # One secret for the whole build: a name in a query and in a document gets the same surrogate.
            salt=job.build.root / "surrogates.salt",
            keep_meta=self.keep_meta,
            ids=self.ids,
            known=job.path("known") if self.known is not None else None,
            strict=self.strict,
            reviewed=job.path("reviewed") if self.reviewed is not None else None,
            columns=self.columns,
            sources=self.sources or (),
            show_progress=job.show_progress,
        )
        return StepOutcome({**counts_of(done.report), "identifiers": done.identifiers})
