"""Option that repairs a damaged journal before a step resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["RepairFlag", "repair_answers", "repair_judgements"]

RepairFlag = Annotated[
    bool,
    typer.Option("--repair", help="Move a damaged journal aside, recover its readable rows and continue."),
]


def repair_judgements(out: Path, journal: Path | None) -> None:
    """Repair a journal of judgements, and print what was kept.

    Raises:
        BuildError: There is no journal, or the file is not one.
    """
    from mar_st.files import counted  # lazy: numpy
    from medteb_mteb.curation import judge as judging  # lazy: numpy

    repaired = judging.repair_journal(judging.journal_path(out, journal))
    typer.echo(
        f"{counted(repaired.judgements, 'judgement')} and {counted(repaired.accounts, 'account')} kept; the "
        f"damaged journal is {repaired.moved}",
        err=True,
    )


def repair_answers(out: Path, journal: Path | None) -> None:
    """Repair a journal of LLM answers, and print what was kept.

    Raises:
        BuildError: There is no journal, or the file is not one.
    """
    from mar_st.files import counted  # lazy: numpy
    from medteb_mteb.curation.llm import answers_path  # lazy: numpy
    from medteb_mteb.curation.llm import repair_answers as run  # lazy: numpy

    repaired = run(answers_path(out, journal))
    kept = counted(repaired.answers, "answer")
    typer.echo(f"{kept} kept; the damaged journal is {repaired.moved}", err=True)
