"""Settings of the steps that ask an LLM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.options import FromFile
from medteb_mteb.curation.llm.config import LLM
from medteb_mteb.curation.llm.generate import Generation, generate, refuse_unanswered
from medteb_mteb.curation.llm.journal import journal_path
from medteb_mteb.curation.step import Runtime, StepSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from medteb_mteb.curation.llm.client import Prompt
    from medteb_mteb.curation.step import Estimate

__all__ = ["AnswerSettings", "WriterSettings", "check_key"]


class AnswerSettings(StepSettings):
    """Options of a step that uses answers of LLMs."""

    journal: Annotated[Path | None, Runtime()] = Field(
        None, description="Journal of paid answers; default: $MEDTEB_ANSWERS, or answers.sqlite beside OUT."
    )
    already_anonymous: Annotated[bool, Runtime()] = Field(
        False, description="Also send texts that were not anonymised: they hold no personal data."
    )
    retry_failed: Annotated[bool, Runtime()] = Field(
        False, description="Ask again, once, for everything that failed in earlier runs."
    )

    @property
    def answers(self) -> Path:
        """Return the path of the journal."""
        return journal_path(self.out, self.journal)


class WriterSettings(AnswerSettings):
    """Options of a step that has one LLM answer prompts."""

    llm: Annotated[LLM, FromFile()] = Field(description="YAML file of the LLM.")

    def ask(
        self, prompts: Iterable[Prompt], version: str, read: Callable[[Prompt, str], Any], name: str
    ) -> Generation[Any]:
        """Have the LLM answer prompts, see `generate`.

        Raises:
            MarError: Every prompt failed, or the LLM cannot be asked.
        """
        generation = generate(
            prompts,
            self.llm,
            self.answers,
            version=version,
            read=read,
            retry_failed=self.retry_failed,
            show_progress=sys.stderr.isatty(),
            name=name,
        )
        refuse_unanswered(generation)
        return generation

    def estimate(self, like: Prompt, requests: int, rows: int) -> Estimate:
        """Return the estimate of a step that writes `rows` rows and sends prompts like the given one."""
        return self.llm.estimate(rows, requests, like.tokens)

    def provenance(self, version: str, generation: Generation[Any]) -> dict[str, list[dict[str, Any]]]:
        """Return who has written the texts, in the form of `provenance.json`."""
        writer = {"name": self.llm.name, **self.llm.settings(version), "answered": generation.answered}
        return {"writers": [writer]}


def check_key(settings: WriterSettings) -> None:
    """Check that the key of the LLM is set.

    Raises:
        MarError: It is missing.
    """
    settings.llm.key()
