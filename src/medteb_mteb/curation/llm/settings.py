"""Settings of the steps that have an LLM answer prompts, and the check that no private text is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import FromFile
from medteb_mteb.curation.llm.config import LLM
from medteb_mteb.curation.llm.generate import Generation, Job, ask
from medteb_mteb.curation.llm.journal import Journal, journal_path
from medteb_mteb.curation.step import Estimate, Runtime, StepSettings

if TYPE_CHECKING:
    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.llm.client import Prompt


class PrivateSettings(StepSettings):
    """Options of a step that sends its texts to LLMs."""

    already_anonymous: Annotated[bool, Runtime()] = Field(
        False, description="Also send texts that were not anonymised: they hold no personal data."
    )

    def refuse_private(self, **texts: Sequence[Text]) -> None:
        """Refuse to send texts that have not been anonymised.

        Args:
            **texts: Texts by name for messages, for instance `queries` and `documents`.

        Raises:
            MarError: A text has not been anonymised.
        """
        counts = {name: sum(not text.anonymised for text in some) for name, some in texts.items()}
        if any(counts.values()) and not self.already_anonymous:
            summary = " and ".join(f"{count} of {len(texts[name])} {name}" for name, count in counts.items())
            raise MarError(
                f"{summary} have not been anonymised, and this step would send them to an LLM. Run 'medteb "
                "anonymize' on them first; if they hold no personal data, give --already-anonymous."
            )


class WriterSettings(StepSettings):
    """Options of a step that has one LLM answer prompts."""

    llm: Annotated[LLM, FromFile()] = Field(description="YAML file of the LLM.")

    def check(self) -> None:
        """Check that the key of the LLM is set."""
        self.llm.key()

    def ask(
        self, prompts: Iterable[Prompt], version: str, read: Callable[[Prompt, str], Any], name: str
    ) -> Generation[Any]:
        """Have the LLM answer prompts, see `Job`; what failed in earlier runs is asked for once more.

        The run stops if all of them fail.
        """
        asked = list(prompts)
        job = Job(self.llm, asked, version, read, count=len(asked))
        with Journal(journal_path(self.out)) as journal:
            generation = ask([job], journal, name=name)[0]
        if not generation.stopped and generation.failed and not generation.answers:
            reasons = ", ".join(f"{reason} {n:,}" for reason, n in generation.counts()["failed"].items())
            generation.stopped = (
                f"the LLM gave no valid answer to any of {len(generation.failed):,} prompts ({reasons}). "
                "Correct the cause"
            )
        return generation

    def estimate(self, like: Prompt, requests: int, rows: int) -> Estimate:
        """Return the estimate of a step that writes `rows` rows and sends prompts like the given one."""
        return self.llm.estimate(rows, requests, like.tokens)

    def provenance(self, version: str, generation: Generation[Any]) -> dict[str, list[dict[str, Any]]]:
        """Return who has written the texts, in the form of `provenance.json`."""
        writer = {"name": self.llm.name, **self.llm.settings(version), "answered": generation.answered}
        return {"writers": [writer]}
