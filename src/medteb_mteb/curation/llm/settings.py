"""Settings of the steps that have an LLM answer prompts, and the check that no private text is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import FromFile
from medteb_mteb.curation.lineage import provenance_of
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

    def refuse_raw(self, *sources: Path) -> None:
        """Refuse to send rows that were not made of anonymised texts.

        Args:
            *sources: Files or folders of the rows.

        Raises:
            MarError: No step has anonymised what the rows were made of.
        """
        raw = [str(one) for one in sources if not provenance_of([one]).get("anonymisers")]
        if raw and not self.already_anonymous:
            raise MarError(
                f"{raw[0]} was not made of anonymised texts, and this step would send it to an LLM. Run "
                "'medteb anonymize' first; if it holds no personal data, give --already-anonymous."
            )


def ask_llm(
    llm: LLM,
    prompts: Sequence[Prompt],
    version: str,
    read: Callable[[Prompt, str], Any],
    *,
    name: str,
    out: Path,
    may_fail: bool = False,
) -> Generation[Any]:
    """Have an LLM answer prompts, see `Job`; what failed in earlier runs is asked for once more.

    Args:
        llm: The LLM.
        prompts: The prompts.
        version: Their version.
        read: Returns the result of an answer.
        name: Label of the progress bar.
        out: Folder of the step; the journal is beside it.
        may_fail: Do not stop the run if all of them fail.
    """
    job = Job(llm, prompts, version, read, count=len(prompts))
    with Journal(journal_path(out)) as journal:
        generation = ask([job], journal, name=name)[0]
    if generation.failed and not (generation.stopped or generation.answers or may_fail):
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in generation.counts()["failed"].items())
        generation.stopped = (
            f"the LLM gave no valid answer to any of {len(generation.failed):,} prompts ({reasons}). "
            "Correct the cause"
        )
    return generation


class WriterSettings(StepSettings):
    """Options of a step that has one LLM answer prompts."""

    llm: Annotated[LLM, FromFile()] = Field(description="YAML file of the LLM.")

    def check(self) -> None:
        """Check that the key of the LLM is set."""
        self.llm.key()

    def ask(
        self,
        prompts: Sequence[Prompt],
        version: str,
        read: Callable[[Prompt, str], Any],
        name: str,
        **options: Any,
    ) -> Generation[Any]:
        """Have the LLM answer prompts, see `ask_llm`."""
        return ask_llm(self.llm, prompts, version, read, name=name, out=self.out, **options)

    def estimate(self, like: Prompt, requests: int, rows: int) -> Estimate:
        """Return the estimate of a step that writes `rows` rows and sends prompts like the given one."""
        return self.llm.estimate(rows, requests, like.tokens)

    def provenance(self, version: str, generation: Generation[Any]) -> dict[str, list[dict[str, Any]]]:
        """Return who has written the texts, in the form of `provenance.json`."""
        return {"writers": [written_by(self.llm, version, generation)]}


def written_by(llm: LLM, version: str, generation: Generation[Any]) -> dict[str, Any]:
    """Return an LLM with what it has answered, in the form of `provenance.json`."""
    return {"name": llm.name, **llm.settings(version), "answered": generation.answered}
