"""Running a recipe: stage after stage; each is resumable and saves a model folder."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import set_seed
from transformers.utils import logging

from mar_st.data import Source, data_digest, read_source, source_digest
from mar_st.errors import MarError
from mar_st.evaluation.evaluators import check_evaluation
from mar_st.files import JsonError, move_folder, read_json, write_digests, write_text
from mar_st.files.processes import Processes
from mar_st.files.reading import read_record
from mar_st.model.dtypes import store_as
from mar_st.model.mlm_head import source_head
from mar_st.model.prompts import with_source_prompts
from mar_st.planning.devices import device_here
from mar_st.planning.launch import Launch
from mar_st.recipes.rules import stage_entries, stage_seed, trained_sides
from mar_st.recipes.schema import ContrastiveStage, DistillStage, JointStage, RetroMAEStage
from mar_st.runs import STAGES_VARIABLE
from mar_st.runs.card import write_card
from mar_st.runs.lineage import stage_digests
from mar_st.runs.mined import forget_work, mined_sources
from mar_st.runs.preflight import FIT_KEY, check_packages, check_sources, native_precision, ready
from mar_st.runs.sides import Sides, check_models
from mar_st.runs.stage_folder import (
    DONE_FILE,
    IDENTITY_FILE,
    adopt,
    is_finished,
    keep_model,
    link_weights,
    restore_marker,
)
from mar_st.stages.dispatch import train_stage
from mar_st.stages.memory import release
from mar_st.stages.reports import check_callbacks, check_reports
from mar_st.stages.settings import StageSettings
from mar_st.vocabulary.backbones import cut_backbones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sentence_transformers import SentenceTransformer

    from mar_st.modules.retromae_decoder import MLMHead
    from mar_st.recipes.schema import Data, Precision, Recipe, Stage

logger = logging.get_logger(__name__)


class TrainError(MarError):
    """A run that cannot start or continue; the message says what to do."""


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    save_steps: int = 200,
    say: Callable[[str], None] = logger.info,
    until: str | None = None,
    resume: bool = False,
    stages: str | Path | Literal[False] | None = None,
    store: str | Path | None = None,
    read: Callable[[Data, int], Source] | None = None,
    callbacks: Sequence[Any] = (),
    report_to: str | Sequence[str] = (),
    fit: bool | None = None,
) -> Path:
    """Run a recipe, or resume an interrupted run.

    Started by `torchrun` or `accelerate launch`, all processes train and the first one writes.

    Args:
        recipe: What to train.
        out: Run folder. A finished stage is kept; an unfinished one resumes from its last checkpoint.
        save_steps: Steps between checkpoints.
        say: Receives one line per stage.
        until: Name of the last stage to run; default all.
        resume: Raise an error if there is no run to resume.
        stages: Folder that keeps stages by digest, shared by several runs; default `$MAR_STAGES`, else the
            run folder itself, as `out/01-NAME`. False keeps stages in the run folder, whatever the
            environment says.
        store: Folder of teacher vectors; default `$MAR_STORE`, or else `teacher-store` beside the run folder.
        read: Reads a data entry with a seed; default `mar_st.data.read_source`.
        callbacks: transformers callbacks, instances or classes; every stage has its own trainer, which calls
            them. A `mar_st.stages.reports.RunCallback` also receives the begin and end of stages.
        report_to: Trackers that transformers reports to: `wandb`, `mlflow`, ...; each stage becomes a run
            there, called `RUN/STAGE`. TensorBoard records are written if it is installed.
        fit: For stages that do not fit the GPU: change their memory settings (True), refuse them (`None`), or
            try anyway (False), see `mar_st.runs.preflight.ready`.

    Returns:
        Folder of the finished model (`out/model`), a plain sentence-transformers folder; with `until`, the
        folder of that stage's model.

    Raises:
        TrainError: The folder belongs to another recipe, another launch is writing it, there is nothing to
            resume, or `until` is unknown.
        LaunchError: A stage cannot be trained by this launch, or does not fit the GPU.
        MarError: Training data are missing or broken.
        MarError: A backbone or a teacher does not exist, or the width of an encoder does not fit.
        ReportError: An entry is not a callback, or a tracker is unknown or not installed.
        PackageError: accelerate is not installed, or peft for a stage with LoRA.
    """
    heard = check_callbacks(callbacks), check_reports(report_to)
    shared = None if stages is False else stages or os.environ.get(STAGES_VARIABLE) or None
    check_packages(recipe)
    check_models(recipe)
    recipe = with_source_prompts(recipe)
    run = RecipeRun(
        recipe,
        Path(out),
        save_steps,
        say,
        Path(shared) if shared else None,
        read or read_source,
        *heard,
        fit,
        Path(store) if store else None,
    )
    last = run.position(until)
    with run.processes.alone(run.out, TrainError):
        if resume:
            run.check_resumable()
        run.open(last)
        folder = run.out
        for index in range(last + 1):
            folder = run.stage(index)
        return folder if until is not None else run.close()


@dataclass
class RecipeRun:
    """One run of a recipe in a folder."""

    recipe: Recipe
    out: Path
    save_steps: int
    say: Callable[[str], None]
    store: Path | None
    read: Callable[[Data, int], Source]
    callbacks: tuple[Any, ...] = ()
    report_to: tuple[str, ...] = ()
    fit: bool | None = None
    vectors: Path | None = None
    sources: list[Source] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    sides: Sides = field(init=False)
    precision: Precision = field(init=False)
    processes: Processes = field(default_factory=Processes)

    def position(self, name: str | None) -> int:
        """Return the index of a stage, by default of the last one."""
        names = [stage.name for stage in self.recipe.stages]
        if name is not None and name not in names:
            raise TrainError(f"{self.recipe.name} has no stage {name!r}; it has {', '.join(names)}.")
        return names.index(name) if name is not None else len(names) - 1

    def check_resumable(self) -> None:
        """Refuse a folder without a run."""
        if not (self.out / "recipe.json").is_file():
            raise TrainError(
                f"{self.out} holds no run to resume. Leave out --resume to start one, or give its --out."
            )

    def open(self, last: int) -> None:
        """Check the recipe, claim the folder, read the data and compute the digests of the stages.

        Args:
            last: Index of the last stage to run.
        """
        marker = self.out / "recipe.json"
        name = self.recipe.name
        if marker.exists() and _recorded_name(marker) != name:
            raise TrainError(f"{self.out} holds a run of another recipe; choose another --out or delete it.")
        names = [
            stage.name
            for index, stage in enumerate(self.recipe.stages[: last + 1])
            if not (self._own_folder(index) / DONE_FILE).is_file()
        ]
        device = device_here()
        self.recipe, fitted = ready(
            self.recipe, marker, Launch.here(), device, names=names, fit=self.fit, say=self._say
        )
        self.precision = native_precision(self.recipe.precision, on_cpu=device is None, say=self._say)
        self.processes.wait()  # all have read the marker
        if self.recipe.evaluation is not None:
            check_evaluation(self.recipe.evaluation)
        self.sources = [self.read(entry, self.recipe.seed) for entry in self.recipe.data]
        check_sources(self.recipe, self.recipe.stages[: last + 1], self.sources)
        self.sides = Sides(self.recipe, self.sources, precision=self.precision)
        self.digests = stage_digests(self.recipe, {s.entry.name: source_digest(s) for s in self.sources})
        if self.processes.main:
            self.out.mkdir(parents=True, exist_ok=True)
            mine = self.recipe.model_dump(mode="json") | ({FIT_KEY: fitted} if fitted else {})
            write_text(marker, json.dumps(mine, indent=2, ensure_ascii=False))
        for source in self.sources:
            what = f"{len(source.triples)} triples" if source.triples else f"{len(source.texts)} texts"
            self._say(f"data {source.entry.name}: {what}")
            for note in source.notes():
                self._say(note)
        self.processes.wait()
        if names:  # some stage is not trained yet
            self.sides.cut = cut_backbones(
                self.recipe, self.sources, (self.store or self.out) / "vocabulary", self.processes, self._say
            )

    def stage(self, index: int) -> Path:
        """Run one stage unless it is finished, and return the folder of its model."""
        stage, identity = self.recipe.stages[index], self.digests[index]
        folder, marker = self._folder(index), {"digest": identity, "stage": stage.name}
        with self._alone(folder):
            if self.processes.main:
                own = self._own_folder(index)
                for place in {own, folder}:
                    if restore_marker(place, marker):
                        self.say(f"stage {stage.name}: {place / DONE_FILE} was damaged and is written again")
                adopt(own, folder, identity)
            self.processes.wait()
            if is_finished(folder, identity):
                self._say(f"stage {stage.name}: finished before, kept")
            else:
                self.processes.wait()  # all have seen that it is not finished
                if self.processes.main:
                    self._prepare(folder, stage, identity)
                self.processes.wait()
                self._say(f"stage {stage.name}: {stage.stage}")
                settings = self._settings(stage, folder)
                for callback in settings.run_callbacks:
                    callback.on_stage_begin(stage, folder)
                model = self._train(stage, settings)
                if self.processes.main:
                    keep_model(model, folder, marker)
                del model
                release(compiled=self.recipe.compile)
                self.processes.wait()
                for callback in settings.run_callbacks:
                    callback.on_stage_end(stage, folder)
            if self.processes.main:
                self._record(index, folder)
            self.processes.wait()
        for side in trained_sides(stage):
            self.sides.folders[side] = folder / "model"
        return folder / "model"

    @contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """Lock a stage of the store while it is trained."""
        if self.store is None:
            yield
            return
        self.store.mkdir(parents=True, exist_ok=True)
        with self.processes.locked(
            folder.with_name(folder.name + ".lock"),
            lambda: self._say("another run trains this stage; waiting for it"),
        ):
            yield

    def _folder(self, index: int) -> Path:
        if self.store is not None:
            return self.store / self.digests[index]
        return self._own_folder(index)

    def _own_folder(self, index: int) -> Path:
        return self.out / f"{index + 1:02d}-{self.recipe.stages[index].name}"

    def _prepare(self, folder: Path, stage: Stage, identity: str) -> None:
        """Prepare an empty folder, or keep the one that this stage has begun."""
        stale = folder / IDENTITY_FILE
        if folder.is_symlink():  # a stage of the store, from a run with --stages
            folder.unlink()
        elif folder.exists() and (not stale.exists() or stale.read_text() != identity):
            self.say(f"stage {stage.name}: the recipe or the data changed, so it is trained again")
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(stale, identity)

    def _record(self, index: int, folder: Path) -> None:
        """Record in the run folder where a stage of the store is: in `stages.json`, and as a link."""
        path = self.out / "stages.json"
        known = read_record(path) or {}
        names = [stage.name for stage in self.recipe.stages]
        known = {name: entry for name, entry in known.items() if name in names}
        known[names[index]] = {"digest": self.digests[index], "folder": os.path.relpath(folder, self.out)}
        write_text(path, json.dumps({name: known[name] for name in names if name in known}, indent=2))
        link = self._own_folder(index)
        if folder == link:
            return
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            shutil.rmtree(link)
        try:
            link.symlink_to(os.path.relpath(folder.resolve(), self.out.resolve()), target_is_directory=True)
        except OSError:  # a file system without links; stages.json has the path too
            logger.info("no link %s -> %s", link, folder)

    def _settings(self, stage: Stage, folder: Path) -> StageSettings:
        recipe = self.recipe
        return StageSettings(
            folder,
            stage_seed(recipe, stage),
            self.precision,
            self.save_steps,
            recipe.evaluation,
            workers=recipe.workers,
            compile=recipe.compile,
            callbacks=self.callbacks,
            report_to=self.report_to,
            store=self.vectors,
        )

    def _train(self, stage: Stage, settings: StageSettings) -> SentenceTransformer:
        recipe = self.recipe
        entries = {entry.name: entry for entry in stage_entries(recipe, stage)}
        sources = [
            replace(source, entry=entries[source.entry.name])
            for source in self.sources
            if source.entry.name in entries
        ]
        set_seed(settings.seed)
        model = self.sides.for_stage(stage)
        if isinstance(stage, ContrastiveStage) and stage.mine is not None:
            sources = mined_sources(model, sources, stage, settings, self._say)
        learns = isinstance(stage, DistillStage | JointStage) and stage.taught
        teacher = self.sides.teacher(stage) if learns else None  # type: ignore[arg-type]
        head = self._source_head(stage) if isinstance(stage, RetroMAEStage) else None
        train_stage(model, sources, stage, settings, recipe.prompts, teacher=teacher, head=head)
        forget_work(settings)
        return model

    def _source_head(self, stage: RetroMAEStage) -> MLMHead | None:
        """Return the masked-LM head of the backbone, if the stage starts from it."""
        backbone, origin = self.recipe.query, self.sides.origin("query")
        if stage.resume_head or backbone is None or origin is None:
            return None
        head = source_head(*origin)
        whose = "random weights" if head is None else f"that of {backbone.source}"
        self._say(f"stage {stage.name}: masked-LM head from {whose}")
        return head

    def close(self) -> Path:
        """Copy the last stage's model to `out/model`, in the storage dtype of the recipe, with its card."""
        target, part = self.out / "model", self.out / "model.part"
        if self.processes.main:
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(self._folder(len(self.digests) - 1) / "model", part, copy_function=link_weights)
            if self.recipe.storage_dtype:
                store_as(part, self.recipe.storage_dtype)
            folders = {s.name: self._folder(index) for index, s in enumerate(self.recipe.stages)}
            write_card(part, self.recipe, [_card_digest(source) for source in self.sources], folders)
            write_digests(part)
            shutil.rmtree(target, ignore_errors=True)
            move_folder(part, target)
        self.processes.wait()
        self._say(f"model: {target}")
        return target

    def _say(self, line: str) -> None:
        if self.processes.main:
            self.say(line)


def _recorded_name(marker: Path) -> Any:
    """Return the name of the recipe that a run folder belongs to."""
    try:
        content = read_json(marker)
    except JsonError as error:
        raise TrainError(
            f"{marker} is damaged ({error}). Delete this file and run the command without --resume; finished "
            "stages are kept."
        ) from error
    return content.get("name") if isinstance(content, dict) else None


def _card_digest(source: Source) -> str:
    """Return the digest of a source's files, or of its content if it comes from the Hub."""
    path = source.entry.path
    return source_digest(source) if path.startswith("hub:") else data_digest(path)
