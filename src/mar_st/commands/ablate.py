"""`mar ablate`: train and compare all rows of a study."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mar_st.commands.options import SaveSteps
from mar_st.errors import MarError
from mar_st.runs import STAGES_VARIABLE

if TYPE_CHECKING:
    from mar_st.study import Study
    from mar_st.study.grid import PlannedStage


def ablate(
    study: Annotated[str, typer.Argument(help="Name of a packaged study, or a YAML file.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the study; default: runs/NAME.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would be trained and exit.")] = False,
    row: Annotated[
        list[str] | None, typer.Option(help="Train only this row and the full model; may be repeated.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Train only this number of seeds.", min=1)] = None,
    stages: Annotated[
        Path | None, typer.Option(help="Folder of finished stages; default: $MAR_STAGES or OUT/stages.")
    ] = None,
    save_steps: SaveSteps = 200,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Only try every row: each stage for 20 steps, stopped and resumed."),
    ] = False,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="With --rehearse: use small random encoders and packaged data.")
    ] = False,
) -> None:
    """Train a grid of recipes and seeds and compare the models.

    The scores are written as one table. An interrupted study resumes where it stopped.
    """
    from mar_st.study import load_study  # lazy: numpy

    loaded = load_study(study)
    if row or seeds:
        loaded = loaded.narrowed(row, seeds)
    if tiny and not rehearse:
        raise MarError("--tiny goes with --rehearse; a study of small encoders is 'mar ablate mini'.")
    if rehearse:
        place = Path("runs") / f"{loaded.name}-rehearsal" if out is None else out / "rehearsal"
        _rehearse(loaded, place, tiny=tiny)
        return
    folder = out or Path("runs") / loaded.name
    store = stages or os.environ.get(STAGES_VARIABLE) or folder / "stages"
    if plan:
        _plan(loaded, store)
        return
    from mar_st.study.grid import run_study  # lazy: torch

    run_study(loaded, folder, stages=store, save_steps=save_steps, say=typer.echo)


def _rehearse(study: Study, folder: Path, *, tiny: bool) -> None:
    """Rehearse the recipe of every row in a folder of its own, which is deleted if all of them pass.

    One error at the end names all rows that failed.
    """
    from mar_st.commands.rehearse import run  # lazy: torch
    from mar_st.rehearsal.rehearse import start_folder  # lazy: torch
    from mar_st.study.schema import row_recipes  # lazy: numpy

    start_folder(folder, study.name)
    failed = []
    recipes = row_recipes(study, folder / "recipes")
    for name, by_seed in recipes.items():
        try:
            run(by_seed[study.seeds[0]], folder / name, tiny=tiny, say=typer.echo)
        except MarError as error:
            typer.echo(f"row {name}: {error}", err=True)
            failed.append(name)
        else:
            shutil.rmtree(folder / name)
    if failed:
        raise MarError(f"{len(failed)} of {len(recipes)} rows failed: {', '.join(failed)}. See {folder}.")
    shutil.rmtree(folder)


def _plan(study: Study, store: str | Path) -> None:

    from mar_st.study.grid import plan_study  # lazy: torch

    with tempfile.TemporaryDirectory() as folder:
        planned = plan_study(study, folder, stages=store)
    typer.echo(as_text(study, planned))


def as_text(study: Study, planned: list[PlannedStage]) -> str:
    """Return the plan for a terminal: the stages of every row for the first seed, then the totals.

    Args:
        study: The study.
        planned: Result of `mar_st.study.grid.plan_study`.
    """
    lines = [f"{study.name}: {len(study.rows)} rows x {len(study.seeds)} seeds, full model {study.full}"]
    width = max(len(row.name) for row in study.rows)
    for row in study.rows:
        stages = [s for s in planned if s.row == row.name and s.seed == study.seeds[0]]
        marks = {"train": "", "shared": " (shared)", "finished": " (finished)"}
        parts = (f"{stage.name} {stage.digest[:8]}{marks[stage.state]}" for stage in stages)
        lines.append(f"  {row.name:{width}}  {', '.join(parts)}")
    counts = {state: sum(s.state == state for s in planned) for state in ("train", "shared", "finished")}
    lines.append(
        f"stages of all seeds: {len(planned)}, of which {counts['shared']} are shared with a row above, "
        f"{counts['finished']} are finished, {counts['train']} will be trained"
    )
    return "\n".join(lines)
