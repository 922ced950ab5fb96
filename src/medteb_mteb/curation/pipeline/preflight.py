"""Checks before the first step for errors that would otherwise stop a build hours later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from medteb_mteb.curation.files.read import STEP_FILE
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.pipeline.base import PipelineStep, ResolvedInput
    from medteb_mteb.curation.pipeline.opened import Build

__all__ = ["check_before"]


def check_before(build: Build, steps: Sequence[PipelineStep]) -> None:
    """Look for missing keys, and for texts that would be refused because they were not anonymised.

    Args:
        build: The pipeline in its folder.
        steps: Steps to run.

    Raises:
        BuildError: An API key is missing, or private texts would be sent.
    """
    for step in (one for one in steps if one.ASKS):
        for llm in step.llms(build.pipeline):
            try:
                llm.key()
            except BuildError as error:
                raise BuildError(f"Step {step.name!r}: {error}") from error
        if build.pipeline.already_anonymous:
            continue
        # The step is assumed to send all texts that it reads.
        for key in dict.fromkeys(key for key, mark, _ in step.inputs() if mark.texts):
            for source in build.sources[step.name].get(key, ()):
                if not _anonymised(build, source):
                    raise BuildError(
                        f"Step {step.name!r} sends {key} of {source.step or source.path} to an LLM, and no "
                        "'anonymize' step comes before it. Add one, or set 'already_anonymous: true' if the "
                        "texts hold no personal data."
                    )


def _anonymised(build: Build, source: ResolvedInput) -> bool:
    """Return True if texts were anonymised, judging by their folder without reading them."""
    if not source.step:
        return (Path(source.path) / STEP_FILE).is_file()  # the step that sends them checks each text
    step = next(one for one in build.pipeline.steps if one.name == source.step)
    if step.ANONYMISES or step.WRITES != "texts" or source.inside:
        return True
    return all(_anonymised(build, one) for inputs in build.sources[step.name].values() for one in inputs)
