"""Schema of a study: rows, seeds, tasks, published numbers. Unknown keys are refused."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mar_st.errors import MarError
from mar_st.evaluation.scored_set import NAME_PATTERN, Task
from mar_st.files import write_text
from mar_st.files.yaml_text import YamlError, parse_yaml
from mar_st.recipes.load import RECIPES, load_recipe

if TYPE_CHECKING:
    from mar_st.recipes.schema import Recipe

STUDIES = RECIPES / "studies"

#: Name of the column with the mean over the tasks.
AVERAGE = "average"


class StudyError(MarError):
    """A study that cannot be run; the message says what to do."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StudyRow(_Strict):
    """One line of the table: a recipe, or changes to the base recipe of the study."""

    name: str = Field(pattern=NAME_PATTERN)
    label: str | None = Field(default=None, description="what the table calls it; default the name")
    group: str | None = Field(default=None, description="rows of a group stand together")
    recipe: str | None = Field(
        default=None, description="another recipe than the base: a shipped name, or a file beside the study"
    )
    changes: dict[str, Any] = Field(
        default_factory=dict, description="laid over the recipe as a file that extends it, lists by name"
    )
    set: dict[str, Any] = Field(default_factory=dict, description="single settings: {stages.align.epochs: 2}")
    model: str | None = Field(
        default=None,
        description="a finished model in the place of a recipe: folder, Hub name or packaged name; 'bm25': "
        "BM25 over character bigrams",
    )
    prompts: dict[str, str] = Field(
        default_factory=dict, description="of a finished model that does not bring its own"
    )
    seeds: int | None = Field(default=None, gt=0, description="only the first seeds of the study")

    @model_validator(mode="after")
    def _keys(self) -> Self:
        if self.model is not None and (self.recipe or self.changes or self.set or self.seeds):
            raise ValueError(
                f"row {self.name}: a finished model is scored as it is; leave out recipe, changes, set, seeds"
            )
        if self.prompts and self.model is None:
            raise ValueError(f"row {self.name}: prompts are for a finished model; a recipe has its own")
        reserved = sorted({"name", "seed", "extends"} & (set(self.changes) | set(self.set)))
        if reserved:
            raise ValueError(f"row {self.name}: {reserved[0]!r} is set by the study; leave it out")
        return self


class Published(_Strict):
    """Numbers that others have published for rows of the study."""

    name: str
    source: str = Field(description="where they are from: paper, table, column")
    task: str | None = Field(default=None, description="the task to compare with; default the average")
    scores: dict[str, float] = Field(min_length=2, description="row: number, on any scale")


class Study(_Strict):
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
    published: tuple[Published, ...] = ()
    permutations: int = Field(default=10_000, ge=10_000, description="of the paired randomisation test")
    resamples: int = Field(default=10_000, ge=1000, description="of the bootstrap")
    test_seed: int = Field(default=0, description="seed of bootstrap and randomisation")
    batch_size: int = Field(default=64, gt=0, description="texts encoded at a time for the scores")

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: object) -> object:
        return tuple(range(42, 42 + value)) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what, names in (("row", [r.name for r in self.rows]), ("task", [t.name for t in self.tasks])):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"two {what}s are called {twice[0]!r}; names must differ")
        if AVERAGE in {task.name for task in self.tasks}:
            raise ValueError(f"a task is called {AVERAGE!r}, as the column of the mean; rename it")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds} repeat; each must differ")
        rows = {row.name for row in self.rows}
        if self.full not in rows:
            raise ValueError(
                f"full is {self.full!r}, which is not a row; choose from {', '.join(sorted(rows))}"
            )
        homeless = [row.name for row in self.rows if row.recipe is None and row.model is None]
        if self.base is None and homeless:
            raise ValueError(f"row {homeless[0]} changes the base, but the study has no 'base' recipe")
        for table in self.published:
            unknown = sorted(set(table.scores) - rows)
            if unknown:
                raise ValueError(
                    f"published {table.name!r} has a number for {unknown[0]!r}, which is not a row"
                )
            if table.task is not None and table.task not in {task.name for task in self.tasks}:
                raise ValueError(
                    f"published {table.name!r} names the task {table.task!r}, which is not there"
                )
        return self

    def row(self, name: str) -> StudyRow:
        """Return a row by name.

        Raises:
            StudyError: The row does not exist.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise StudyError(f"The study has no row {name!r}; it has {', '.join(r.name for r in self.rows)}.")

    def seeds_of(self, row: StudyRow) -> tuple[int, ...]:
        """Return the seeds of a row; a finished model has only the first one."""
        return self.seeds[: 1 if row.model is not None else row.seeds]

    @property
    def trained(self) -> tuple[StudyRow, ...]:
        """Return the rows that have a recipe."""
        return tuple(row for row in self.rows if row.model is None)

    def narrowed(self, rows: list[str] | None = None, seeds: int | None = None) -> Study:
        """Return the study with some of its rows (the full model stays) and its first seeds.

        Raises:
            StudyError: The row does not exist, or the study has fewer seeds.
        """
        names = {self.row(name).name for name in rows or [row.name for row in self.rows]} | {self.full}
        if seeds is not None and not 1 <= seeds <= len(self.seeds):
            raise StudyError(f"The study has {len(self.seeds)} seeds; got {seeds}. Add seeds to the study.")
        tables = []
        for table in self.published:
            scores = {name: value for name, value in table.scores.items() if name in names}
            if len(scores) > 1:
                tables.append(table.model_copy(update={"scores": scores}))
        return self.model_copy(
            update={
                "rows": tuple(row for row in self.rows if row.name in names),
                "seeds": self.seeds[:seeds],
                "published": tuple(tables),
            }
        )


def study_names() -> list[str]:
    """Return the names of the studies that come with the package."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml"))


def load_study(name: str | Path) -> Study:
    """Read a study by shipped name or file.

    Raises:
        StudyError: The study does not exist, its YAML is broken, a key is unknown or a value is invalid.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = STUDIES / f"{name}.yaml"
    if not path.is_file():
        similar = get_close_matches(str(name), study_names())
        hint = f" Did you mean {similar[0]!r}?" if similar else ""
        raise StudyError(
            f"No study {str(name)!r}.{hint} Shipped: {', '.join(study_names())}; or give a .yaml file."
        )
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (YamlError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise StudyError(f"{path} should hold a mapping with 'name', 'rows', 'tasks' and so on.")
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'study'}: {item['msg']}"
            for item in error.errors()
        )
        raise StudyError(f"{path}: {problems}") from error
    return _absolute(study, path.parent)


def _absolute(study: Study, folder: Path) -> Study:
    """Resolve the recipe files that a study names against its folder."""

    def resolve(name: str | None) -> str | None:
        is_file = name is not None and Path(name).suffix in (".yaml", ".yml")
        return str((folder / str(name)).resolve()) if is_file else name

    rows = tuple(row.model_copy(update={"recipe": resolve(row.recipe)}) for row in study.rows)
    return study.model_copy(update={"base": resolve(study.base), "rows": rows})


def row_recipes(study: Study, folder: Path) -> dict[str, dict[int, Recipe]]:
    """Return the recipe of every trained row, by row and seed.

    Each row's recipe is written to `folder/ROW.yaml`, so `mar train folder/ROW.yaml --set seed=...` trains
    exactly the model of the table.

    Raises:
        MarError: The recipe of a row is invalid; the message names the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / "_base.yaml"
    if study.base is not None:
        _dump(base, {"extends": study.base, "name": "base", **study.changes})
    recipes: dict[str, dict[int, Recipe]] = {}
    for row in study.trained:
        path = folder / f"{row.name}.yaml"
        origin = row.recipe or str(base.resolve())
        about = {"description": f"{row.label or row.name}: row {row.name} of the study {study.name}"}
        changed = {"extends": origin, "name": row.name, **about, **row.changes}
        _dump(path, changed)
        settings = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in row.set.items()]
        recipes[row.name] = {
            seed: load_recipe(path, [*settings, f"seed={seed}"]) for seed in study.seeds_of(row)
        }
        if row.set:  # a file that extends another cannot hold settings by dotted key
            whole = recipes[row.name][study.seeds[0]].model_dump(mode="json", exclude_defaults=True)
            _dump(path, whole)
    return recipes


def _dump(path: Path, content: dict[str, Any]) -> None:
    write_text(path, yaml.safe_dump(content, allow_unicode=True, sort_keys=False))
