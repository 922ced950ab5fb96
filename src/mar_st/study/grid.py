"""A study: rows that change a recipe, trained with several seeds, scored on the same tasks and compared."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock, Timeout
from pydantic import Field, field_validator, model_validator

from mar_st.data.rows import HUB, locate
from mar_st.data.training import Source, data_digest, read_source
from mar_st.evaluation.tasks import NAME_PATTERN, Task, TaskData
from mar_st.files import read_record, write_json, write_text
from mar_st.options import Settings, validated
from mar_st.recipes.load import RECIPES, find_yaml, merged, read_content, read_mapping
from mar_st.recipes.rules import used_entries
from mar_st.recipes.schema import Data, Recipe
from mar_st.study.table import as_markdown, make_table

if TYPE_CHECKING:
    from collections.abc import Callable


STUDIES = RECIPES / "studies"


class StudyRow(Settings):
    """One line of the table: changes to the base recipe of the study, or a finished model."""

    name: str = Field(pattern=NAME_PATTERN)
    label: str | None = Field(default=None, description="what the table calls it; default the name")
    group: str | None = Field(default=None, description="rows of a group stand together")
    recipe: str | None = Field(default=None, description="another recipe than the base: name or file")
    changes: dict[str, Any] = Field(
        default_factory=dict, description="laid over the recipe as a file that extends it, lists by name"
    )
    model: str | None = Field(
        default=None, description="a finished model in the place of a recipe: folder or Hub name"
    )
    prompts: dict[str, str] = Field(default_factory=dict, description="prompts of a finished model")
    seeds: int | None = Field(default=None, gt=0, description="only the first seeds of the study")

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.model is not None and (self.recipe or self.changes or self.seeds):
            raise ValueError(f"row {self.name}: a finished model is scored as it is")
        if self.prompts and self.model is None:
            raise ValueError(f"row {self.name}: prompts are for a finished model; a recipe has its own")
        reserved = sorted({"name", "seed", "extends"} & set(self.changes))
        if reserved:
            raise ValueError(f"row {self.name}: {reserved[0]!r} is set by the study; leave it out")
        return self


class Study(Settings):
    """A grid of rows x seeds, the tasks they are scored on, and the row that the others are compared with."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = ""
    base: str | None = Field(default=None, description="recipe that rows without one of their own change")
    changes: dict[str, Any] = Field(
        default_factory=dict, description="changes to the base, for all rows on it"
    )
    seeds: tuple[int, ...] = Field(default=(42, 43, 44), min_length=1, description="seeds, or how many")
    full: str = Field(description="row of the full model, which the others are tested against")
    rows: tuple[StudyRow, ...] = Field(min_length=1)
    tasks: tuple[Task, ...] = Field(min_length=1)

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: object) -> object:
        return tuple(range(42, 42 + value)) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        rows = [row.name for row in self.rows]
        for what, names in (("row", rows), ("task", [t.name for t in self.tasks]), ("seed", self.seeds)):
            twice = [name for name in names if list(names).count(name) > 1]
            if twice:
                raise ValueError(f"two {what}s are called {twice[0]!r}; each must differ")
        if self.full not in rows:
            raise ValueError(f"full is {self.full!r}, which is not a row; choose from {', '.join(rows)}")
        homeless = [row.name for row in self.rows if row.recipe is None and row.model is None]
        if self.base is None and homeless:
            raise ValueError(f"row {homeless[0]} changes the base, but the study has no 'base' recipe")
        return self

    @property
    def runs(self) -> list[tuple[StudyRow, int]]:
        """Return the row and the seed of every model; a finished model has only the first seed."""
        return [
            (row, seed)
            for index, seed in enumerate(self.seeds)
            for row in self.rows
            if index < (1 if row.model is not None else row.seeds or len(self.seeds))
        ]

    def recipe(self, row: StudyRow, seed: int) -> Recipe:
        """Return the recipe of a row for a seed.

        Raises:
            MarError: The recipe is invalid; the message names the row.
        """
        where = f"row {row.name} of the study {self.name}"
        content = read_content(row.recipe or str(self.base))
        if row.recipe is None:
            content = merged(content, self.changes, where)
        about = {"name": row.name, "seed": seed, "description": row.label or row.name}
        return validated(Recipe, merged(content, row.changes, where) | about, where)


def study_names() -> list[str]:
    """Return the names of the studies that come with the package."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def load_study(name: str | Path) -> Study:
    """Read a study by shipped name or file; recipe files are named relative to it.

    Raises:
        MarError: The study does not exist, its YAML is broken, a key is unknown or a value is invalid.
    """
    path = find_yaml(name, STUDIES, study_names())
    content = read_mapping(path)
    rows = content.get("rows")
    parts = [content, *rows] if isinstance(rows, list) else [content]
    for part in (part for part in parts if isinstance(part, dict)):
        for key in ("base", "recipe"):
            if str(part.get(key)).endswith((".yaml", ".yml")):
                part[key] = str((path.parent / part[key]).resolve())
    return validated(Study, content, str(path))


def run_study(
    study: Study,
    out: str | Path,
    *,
    prepare: Callable[[Recipe], Recipe] = lambda recipe: recipe,
    say: Callable[[str], None] = print,
) -> Path | None:
    """Train and score every row with every seed, then write the table.

    A run that was killed resumes where it stopped: finished stages are in `out/stages`, finished scores
    in `out/scores`. Several processes may work on one study, each on its own device: a process skips runs
    that another process is working on, and the last one to finish writes the table.

    Args:
        study: The study.
        out: Folder for runs, scores and the table.
        prepare: Changes a recipe before it is trained, see `mar_st.planning.tiny.shrink`.
        say: Receives one line per step of the work.

    Returns:
        `out/table.json`, with `table.md` beside it; `None` if other processes still work on this study.

    Raises:
        MarError: A recipe, model, data entry or task is missing or broken; raised before any training.
    """
    from mar_st.evaluation.tasks import load_task  # lazy: torch
    from mar_st.model.encoders import check_source  # lazy: torch
    from mar_st.runs.models import check_models  # lazy: torch
    from mar_st.runs.train import train  # lazy: torch

    out = Path(out)
    tasks = [load_task(task) for task in study.tasks]
    recipes = {
        (row.name, seed): prepare(study.recipe(row, seed)) for row, seed in study.runs if row.model is None
    }
    for recipe in recipes.values():
        if recipe.seed == study.seeds[0]:
            check_models(recipe)
            for entry in used_entries(recipe):
                if not entry.path.startswith(HUB):
                    locate(entry.path)
    for row in study.rows:
        if row.model is not None:
            check_source(row.model, what=f"row {row.name}")
    read = _reader()
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    options: dict[str, Any] = {"stages": out / "stages", "store": out / "teacher-store"}
    waiting, before = list(enumerate(study.runs, 1)), 0
    while len(waiting) != before:  # again, since other processes may have finished theirs meanwhile
        runs, waiting, before = waiting, [], len(waiting)
        for number, (row, seed) in runs:
            folder, recipe = out / "runs" / row.name / str(seed), recipes.get((row.name, seed))  # type: ignore[assignment]
            place = f"[{number}/{len(study.runs)}] {row.name}, seed {seed}"
            told = partial(lambda place, line: say(f"{place}: {line}"), place)
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                with FileLock(folder.with_name(f"{seed}.lock"), timeout=0):
                    values[row.name, seed] = _values(
                        row,
                        recipe,
                        out / "scores" / row.name / f"{seed}.json",
                        tasks,
                        partial(train, recipe, folder, say=told, read=read, **options),
                        read,
                        told,
                    )
            except Timeout:
                say(f"{place}: another process is running it")
                waiting.append((number, (row, seed)))
    if waiting:
        return None
    table = make_table(study, tasks, {(row.name, seed): values[row.name, seed] for row, seed in study.runs})
    write_json(out / "table.json", table)
    write_text(out / "table.md", as_markdown(table))
    return out / "table.json"


def _values(
    row: StudyRow,
    recipe: Recipe | None,
    file: Path,
    tasks: list[TaskData],
    trained: Callable[[], Path],
    read: Callable[[Data, int], Source],
    say: Callable[[str], None],
) -> dict[str, list[float]]:
    """Return the value of every item of every task for one model; finished scores are read from `file`."""
    from mar_st.evaluation.tasks import score  # lazy: torch
    from mar_st.model.mar import open_model  # lazy: torch

    identity = _identity(row, recipe, read)
    kept = read_record(file) or {}
    if kept.get("model") != identity:
        kept = {"model": identity, "tasks": {}}
    missing = [task for task in tasks if kept["tasks"].get(task.task.name, {}).get("data") != task.digest]
    if missing:
        model = open_model(str(row.model) if recipe is None else trained()).float()
        model.prompts = {**model.prompts, **row.prompts}
        for task in missing:
            values = score(model, task)
            mean = float(task.scores([values]).per_seed()[0])
            kept["tasks"][task.task.name] = {"data": task.digest, "score": mean, "values": values}
            say(f"{task.task.name} {task.metric} {mean:.4f}")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, kept, indent=None)
    return {task.task.name: kept["tasks"][task.task.name]["values"] for task in tasks}


def _identity(row: StudyRow, recipe: Recipe | None, read: Callable[[Data, int], Source]) -> str:
    """Return a digest of everything that the scores of a model depend on, besides the tasks."""
    from mar_st.model.digest import model_digest  # lazy: torch
    from mar_st.runs.lineage import stage_digests  # lazy: torch

    if recipe is None:
        content: list[Any] = [model_digest(str(row.model)), row.prompts]
    else:
        data = {entry.name: data_digest(read(entry, recipe.seed).entry) for entry in used_entries(recipe)}
        content = [stage_digests(recipe, data)[-1], recipe.storage_dtype]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _reader() -> Callable[[Data, int], Source]:
    """Return a reader that reads an entry once for all rows of a seed; one seed is in memory at a time."""
    sources: dict[tuple[int, str], Source] = {}

    def read(entry: Data, seed: int) -> Source:
        key = (seed, entry.model_dump_json())
        if key not in sources:
            if any(known != seed for known, _ in sources):
                sources.clear()
            sources[key] = read_source(entry, seed)
        return sources[key]

    return read
