"""Running a study: a grid of rows x seeds, each stage trained once, each score kept."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from transformers.utils import logging

from mar_st.data import read_source, source_digest
from mar_st.errors import MarError
from mar_st.evaluation.tasks import load_task, score
from mar_st.files import finished, write_text
from mar_st.files.arrays import load_array
from mar_st.files.reading import read_record
from mar_st.model.opening import open_model, route
from mar_st.runs.lineage import encoder_digest, stage_digests
from mar_st.runs.preflight import check_packages, check_sources
from mar_st.study.finished import BM25, finished_digest, load_finished, score_bm25
from mar_st.study.schema import StudyError, row_recipes
from mar_st.study.table import make_table, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from mar_st.data import Source
    from mar_st.evaluation.tasks import TaskData
    from mar_st.recipes.schema import Data, Recipe, Side
    from mar_st.study.schema import Study

logger = logging.get_logger(__name__)


def run_study(
    study: Study,
    out: str | Path,
    *,
    stages: str | Path | None = None,
    save_steps: int = 200,
    say: Callable[[str], None] = print,
) -> Path | None:
    """Train and score every row with every seed, then write the table.

    A run that was killed resumes where it stopped: finished stages are in `stages`, finished scores in
    `out/scores`. Several processes may work on one study, each on its own device: a process skips runs that
    another process is working on, and the last one to finish writes the table.

    Args:
        study: The study.
        out: Folder for recipes, runs, scores and the table.
        stages: Folder that keeps stages by digest; default `out/stages`.
        save_steps: Steps between checkpoints.
        say: Receives one line per step of the work.

    Returns:
        `out/table.json`, with `table.md` and, if matplotlib is installed, `table.png` beside it; `None` if
        other processes still work on runs of this study.

    Raises:
        StudyError: The folder belongs to another study, or runs failed (the others are kept).
        MarError: A recipe, model, data entry or task is missing or broken; raised before any training.
    """
    grid = Grid(study, Path(out), Path(stages) if stages else Path(out) / "stages", say)
    grid.open()
    failed: list[str] = []
    runs = grid.runs
    places = {run: f"[{number}/{len(runs)}] {run[0]}, seed {run[1]}" for number, run in enumerate(runs, 1)}
    waiting = runs
    for _ in range(2):  # once more at the end: runs of other processes may be finished or abandoned by now
        busy = []
        for row, seed in waiting:
            try:
                if not grid.run(row, seed, save_steps, places[row, seed]):
                    busy.append((row, seed))
            except MarError as error:
                say(f"{places[row, seed]}: failed: {error}")
                failed.append(f"{row} (seed {seed}): {error}")
        waiting = busy
    if failed:
        raise StudyError(
            f"{len(failed)} of {len(runs)} runs failed: {'; '.join(failed)}. What was finished is kept; the "
            "same command resumes with the rest."
        )
    if waiting:
        say(f"{len(waiting)} runs are being run by other processes; the last one writes the table")
        return None
    return grid.table()


@dataclass(frozen=True)
class PlannedStage:
    """One stage of one model of a study.

    Attributes:
        row: Name of the row.
        seed: Seed of the model.
        name: Name of the stage in the row's recipe.
        digest: Identity of the stage.
        state: `train`; `shared` with an earlier row; `finished` in the store.
    """

    row: str
    seed: int
    name: str
    digest: str
    state: str


def plan_study(study: Study, folder: str | Path, *, stages: str | Path | None = None) -> list[PlannedStage]:
    """List what a study will train, without training it: every stage of every model, in training order.

    Args:
        study: The study.
        folder: Folder to write the rows' recipes to.
        stages: Folder of finished stages to reuse.
    """
    store = Path(stages) if stages else Path(folder) / "stages"
    grid = Grid(study, Path(folder), store, say=logger.info)
    recipes = row_recipes(study, Path(folder) / "recipes")
    planned: list[PlannedStage] = []
    seen: set[str] = set()
    for row, seed in grid.runs:
        recipe = recipes.get(row, {}).get(seed)
        if recipe is None:  # a finished model
            continue
        for stage, digest in zip(recipe.stages, grid.digests(recipe), strict=True):
            state = "shared" if digest in seen else "train"
            if state == "train" and (grid.store / digest / "done.json").is_file():
                state = "finished"
            seen.add(digest)
            planned.append(PlannedStage(row, seed, stage.name, digest, state))
    return planned


@dataclass
class Grid:
    """The files of a study."""

    study: Study
    out: Path
    store: Path
    say: Callable[[str], None]
    recipes: dict[str, dict[int, Recipe]] = field(default_factory=dict)
    tasks: list[TaskData] = field(default_factory=list)
    _data: dict[tuple[int, str], Source] = field(default_factory=dict)
    _contents: dict[tuple[int, str], str] = field(default_factory=dict)

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Row and seed of every model, in the order of the work."""
        rows = self.study.rows
        return [
            (row.name, seed) for seed in self.study.seeds for row in rows if seed in self.study.seeds_of(row)
        ]

    def open(self) -> None:
        """Check the study before anything is trained, and claim the folder."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise StudyError(
                "mar ablate runs in one process per device. Start it once per device with the same --out and "
                "another CUDA_VISIBLE_DEVICES; the processes share the work."
            )
        from mar_st.model.prompts import with_source_prompts  # lazy: sentence_transformers
        from mar_st.runs.sides import check_models  # lazy: sentence_transformers

        self.out.mkdir(parents=True, exist_ok=True)
        marker = self.out / "study.json"
        if marker.is_file() and (read_record(marker) or {}).get("name") != self.study.name:
            about = f"{self.out} holds another study, or its {marker.name} is damaged"
            raise StudyError(f"{about}; choose another --out or delete it.")
        self.tasks = [load_task(task) for task in self.study.tasks]
        self.recipes = row_recipes(self.study, self.out / "recipes")
        for row, recipes in self.recipes.items():
            recipe = recipes[self.study.seeds[0]]
            self._check_prompts(row, {"query", "document", *recipe.prompts})  # two are in every model
            check_packages(recipe)
            check_models(recipe)
            with_source_prompts(recipe)
            check_sources(recipe, recipe.stages, [self.read(one, recipe.seed) for one in recipe.data])
        for name, seed in self.runs:
            if seed == self.study.seeds[0]:
                self.identity(name, seed)
        for one in self.study.rows if any(task.prompt for task in self.study.tasks) else ():
            if one.name not in self.recipes and self._costs(one.name):
                self._check_prompts(one.name, load_finished(one).prompts)
        _write(marker, json.dumps(self.study.model_dump(mode="json"), indent=2, ensure_ascii=False))
        for data in self.tasks:
            self.say(f"task {data.task.name}: {len(data.items)} items, {data.metric}")

    def _check_prompts(self, row: str, known: Collection[str]) -> None:
        for task in self.study.tasks:
            if task.prompt is not None and task.prompt not in known:
                raise StudyError(
                    f"task {task.name} asks for the prompt {task.prompt!r}; row {row} has "
                    f"{', '.join(sorted(known))}. Name one of them, or leave prompt out."
                )

    def read(self, entry: Data, seed: int) -> Source:
        """Return a data entry, read once for all rows of a seed."""
        key = (seed, entry.model_dump_json())
        if key not in self._data:
            if any(known != seed for known, _ in self._data):  # one seed in memory at a time
                self._data.clear()
            self._data[key] = read_source(entry, seed)
            self._contents[key] = source_digest(self._data[key])
        return self._data[key]

    def digests(self, recipe: Recipe) -> list[str]:
        """Return the digests of the stages of a recipe, see `mar_st.runs.lineage`."""
        contents = {}
        for entry in recipe.data:
            key = (recipe.seed, entry.model_dump_json())
            if key not in self._contents:
                self.read(entry, recipe.seed)
            contents[entry.name] = self._contents[key]
        return stage_digests(recipe, contents)

    def identity(self, row: str, seed: int) -> str:
        """Return a model's identity: last stage and dtype of the weights, or the files of a finished one."""
        if row not in self.recipes:
            return finished_digest(self.study.row(row))
        recipe = self.recipes[row][seed]
        content = [self.digests(recipe)[-1], recipe.storage_dtype, recipe.prompts]
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _document_digest(self, row: str, seed: int, model: SentenceTransformer) -> str:
        """Return the identity of a model's document encoder, which rows may share."""
        from sentence_transformers.base.modules import Dense  # lazy: sentence_transformers

        if row not in self.recipes:
            return self.identity(row, seed)
        recipe = self.recipes[row][seed]
        self.digests(recipe)  # reads the contents that are not read yet
        contents = {entry.name: self._contents[seed, entry.model_dump_json()] for entry in recipe.data}
        side: Side = "document" if recipe.asymmetric else getattr(recipe.stages[-1], "side", "query")
        # Without such a layer the vectors are neither cut nor projected.
        whole = not any(isinstance(module, Dense) for module in route(model, "document"))
        return encoder_digest(recipe, contents, side, whole=whole)

    def run(self, row: str, seed: int, save_steps: int, place: str) -> bool:
        """Train and score one model; return `False` if another process works on it."""
        folder = self.out / "runs" / row / str(seed)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder.with_name(f"{seed}.lock"), timeout=0):  # training locks the folder itself
                identity = self.identity(row, seed)
                missing = [
                    data for data in self.tasks if self.stored_values(row, seed, data, identity) is None
                ]
                costs = (
                    self._costs(row) and seed == self.study.seeds[0] and not self._cost_kept(row, identity)
                )
                if not missing and not costs:
                    self.say(f"{place}: finished before, kept")
                    return True
                model = self._model(row, seed, folder, save_steps, place)
                self._score(model, row, seed, missing, identity, place)
                if costs and model is not None:
                    self._measure(model, row, identity)
                return True
        except Timeout:
            self.say(f"{place}: another process is running it")
            return False

    def _model(
        self, row: str, seed: int, folder: Path, save_steps: int, place: str
    ) -> SentenceTransformer | None:
        """Return the model of a row, trained if it is not finished; `None` for BM25."""
        from mar_st.runs.train import train  # lazy: sentence_transformers

        if row not in self.recipes:
            self.say(f"{place}: {self.study.row(row).model}, as it is")
            return load_finished(self.study.row(row)) if self._costs(row) else None
        recipe = self.recipes[row][seed]
        self.say(f"{place}: {len(recipe.stages)} stages")
        trained = train(
            recipe,
            folder,
            save_steps=save_steps,
            stages=self.store,
            read=self.read,
            say=lambda line: self.say(f"  {line}"),
        )
        return open_model(trained)

    def _score(
        self,
        model: SentenceTransformer | None,
        row: str,
        seed: int,
        missing: list[TaskData],
        identity: str,
        place: str,
    ) -> None:
        encoder = None if model is None else self._document_digest(row, seed, model)
        for data in missing:
            if model is None or encoder is None:
                values = score_bm25(data)
            else:
                stored = self._documents(encoder, data)
                values = score(model, data, batch_size=self.study.batch_size, stored=stored)
            task_score = float(data.scores([values]).per_seed()[0])
            content = {
                "model": identity,
                "data": data.digest,
                "metric": data.metric,
                "score": task_score,
                "items": data.items,
                "values": values,
            }
            _write(self._score_file(row, seed, data), json.dumps(content))
            self.say(f"{place}: {data.task.name} {data.metric} {task_score:.4f}")

    def _documents(self, encoder: str, data: TaskData) -> Callable[[Callable[[], Tensor]], Tensor]:
        """Return a cache of a corpus's vectors for all rows that share a document encoder."""
        path = self.out / "vectors" / encoder[:32] / f"{data.task.name}-{data.digest[:16]}.npy"

        def stored(encode: Callable[[], Tensor]) -> Tensor:
            with suppress(FileNotFoundError, ValueError):  # a damaged file is written again
                return torch.from_numpy(load_array(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            with finished(path) as part, part.open("wb") as stream:
                np.save(stream, encode().cpu().numpy())
            return torch.from_numpy(load_array(path))

        return stored

    def _measure(self, model: SentenceTransformer, row: str, identity: str) -> None:
        """Measure the query encoder: its cost, the same everywhere, and its time on this machine."""
        from mar_st.study.cost import query_cost, query_encoder, query_time  # lazy: sentence_transformers

        encoder = query_encoder(model)
        texts = self.tasks[0].sample
        cost = {"model": identity, **query_cost(encoder, texts)}
        _write(self.out / "timings" / f"{row}.json", json.dumps(query_time(encoder, texts), indent=2))
        _write(self.out / "costs" / f"{row}.json", json.dumps(cost, indent=2))

    def _costs(self, row: str) -> bool:
        """Return True if a row has an encoder whose cost can be measured."""
        return self.study.row(row).model != BM25

    def _cost_kept(self, row: str, identity: str) -> bool:
        cost, timing = (read_record(self.out / folder / f"{row}.json") for folder in ("costs", "timings"))
        return cost is not None and timing is not None and cost.get("model") == identity

    def _score_file(self, row: str, seed: int, data: TaskData) -> Path:
        return self.out / "scores" / row / str(seed) / f"{data.task.name}.json"

    def stored_values(self, row: str, seed: int, data: TaskData, identity: str) -> list[float] | None:
        """Return stored values of this model on these data; `None` if there are none."""
        content = read_record(self._score_file(row, seed, data))
        if content is None or (content.get("model"), content.get("data")) != (identity, data.digest):
            return None
        values: list[float] = content["values"]
        return values

    def table(self) -> Path:
        """Write the table of all scores."""
        values: dict[str, dict[str, list[list[float]]]] = {}
        models: dict[str, dict[int, str]] = {}
        for row, seed in self.runs:  # by seed: the data of one seed are in memory at a time
            identity = self.identity(row, seed)
            models.setdefault(row, {})[seed] = identity
            for data in self.tasks:
                scores = self.stored_values(row, seed, data, identity)
                if scores is None:
                    raise StudyError(
                        f"{row}, seed {seed} has no score on {data.task.name}: another process "
                        "changed the folder meanwhile. Run the same command again."
                    )
                values.setdefault(row, {}).setdefault(data.task.name, []).append(scores)
        costs, timings = (self._per_row(name) for name in ("costs", "timings"))
        table = make_table(self.study, self.tasks, values, models, costs)
        return write_table(table, timings, self.out, self.say)

    def _per_row(self, folder: str) -> dict[str, dict[str, Any]]:
        return {
            row.name: json.loads((self.out / folder / f"{row.name}.json").read_text(encoding="utf-8"))
            for row in self.study.rows
            if self._costs(row.name)
        }


def _write(path: Path, text: str) -> None:
    """Write a whole file or none: a study may be killed at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
