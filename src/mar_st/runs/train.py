"""Running a recipe: stage after stage; each is resumable and saves a model folder."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock
from transformers import set_seed
from transformers.integrations import get_reporting_integration_callbacks  # type: ignore[attr-defined]
from transformers.utils import logging

from mar_st.data.columns import with_negatives
from mar_st.data.sequences import Triples
from mar_st.data.training import Source, data_digest, read_source
from mar_st.errors import MarError
from mar_st.files import load_package, locked, one_line, read_record, replace_folder, write_json
from mar_st.mining.miner import mine
from mar_st.mining.retrievers import Dense
from mar_st.mining.rules import Rules
from mar_st.model.encoders import with_source_prompts
from mar_st.model.loading import is_native, store_as
from mar_st.model.tokenizers import forget_lengths
from mar_st.planning.launch import Launch
from mar_st.planning.plan import short_of_memory
from mar_st.recipes.rules import stage_entries, stage_seed, trained_sides, used_entries
from mar_st.recipes.schema import (
    AlignStage,
    ContrastiveStage,
    Data,
    DistillStage,
    JointStage,
    Recipe,
    RetroMAEStage,
    Stage,
)
from mar_st.runs.card import write_card
from mar_st.runs.lineage import stage_digests
from mar_st.runs.models import Sides, check_models
from mar_st.stages.align import train_align
from mar_st.stages.columns import encoder_teacher
from mar_st.stages.contrastive import train_contrastive, train_distill, train_joint
from mar_st.stages.fit import DevEvaluator
from mar_st.stages.retromae import source_head, train_retromae
from mar_st.stages.trainer import StageSettings
from mar_st.teachers.store import store_root
from mar_st.vocabulary.trim import cut_backbones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from accelerate import PartialState  # type: ignore[import-untyped]
    from sentence_transformers import SentenceTransformer


logger = logging.get_logger(__name__)

#: Marker of a finished stage, and digest of the stage that a folder was begun for.
DONE_FILE, BEGUN_FILE = "done.json", "begun.json"


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    save_steps: int = 200,
    say: Callable[[str], None] = logger.info,
    stages: str | Path | None = None,
    store: str | Path | None = None,
    read: Callable[[Data, int], Source] = read_source,
    report_to: Sequence[str] = (),
) -> Path:
    """Run a recipe, or resume an interrupted run.

    Started by `torchrun` or `accelerate launch`, all processes train and the first one writes.

    Args:
        recipe: What to train.
        out: Run folder. A finished stage is kept; an unfinished one resumes from its last checkpoint.
        save_steps: Steps between checkpoints.
        say: Receives one line per stage.
        stages: Folder that keeps stages by digest, shared by several runs; default the run folder itself, as
            `out/01-NAME`.
        store: Folder of teacher vectors; default `$MAR_STORE`, or else `teacher-store` beside the run folder.
        read: Reads a data entry with a seed.
        report_to: Trackers that transformers reports to: `wandb`, `tensorboard`, ...; each stage becomes a
            run there, called `RUN/STAGE`.

    Returns:
        Folder of the finished model (`out/model`), a plain sentence-transformers folder.

    Raises:
        MarError: The recipe cannot be run here, data are missing or broken, or the folder belongs to another
            recipe or is being written.
    """
    _check_packages(recipe, report_to)
    check_models(recipe)
    from accelerate import PartialState  # lazy: accelerate

    run = RecipeRun(
        with_source_prompts(recipe),
        Path(out),
        say,
        PartialState(cpu=not torch.cuda.is_available()),
        save_steps=save_steps,
        shared=Path(stages) if stages else None,
        vectors=Path(store) if store else None,
        report_to=tuple(report_to),
    )
    with locked(run.out) if run.main else nullcontext():
        run.open(read)
        for index in range(len(recipe.stages)):
            run.stage(index)
        return run.close()


def _check_packages(recipe: Recipe, report_to: Sequence[str]) -> None:
    load_package("accelerate", extra="train")
    if any(getattr(stage, "lora_r", None) is not None for stage in recipe.stages):
        load_package("peft", extra="train")
    try:
        for callback in get_reporting_integration_callbacks(list(report_to)):  # type: ignore[no-untyped-call]
            callback()
    except (ValueError, RuntimeError, ImportError) as error:
        raise MarError(f"report_to {', '.join(report_to)}: {one_line(error)}") from error


@dataclass
class RecipeRun:
    """One run of a recipe in a folder; the first process writes files, and the others wait for it."""

    recipe: Recipe
    out: Path
    say: Callable[[str], None]
    processes: PartialState
    save_steps: int = 200
    shared: Path | None = None
    vectors: Path | None = None
    report_to: tuple[str, ...] = ()
    sources: list[Source] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    sides: Sides = field(init=False)

    @property
    def main(self) -> bool:
        """Return True in the first process."""
        return bool(self.processes.is_main_process)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Hold a lock, which another run may hold for hours; the first process takes it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path) if self.main else nullcontext():
            self.processes.wait_for_everyone()
            yield
            self.processes.wait_for_everyone()

    def folder(self, index: int) -> Path:
        """Return the folder of a stage."""
        if self.shared is not None:
            return self.shared / self.digests[index]
        name = self.recipe.stages[index].name
        own = sorted(self.out.glob(f"[0-9][0-9]-{name}"))  # kept if stages before it come or go
        return own[0] if own else self.out / f"{index + 1:02d}-{name}"

    def finished(self, index: int) -> bool:
        """Return True if a stage is finished."""
        marker = read_record(self.folder(index) / DONE_FILE)
        return marker is not None and marker.get("digest") == self.digests[index]

    def open(self, read: Callable[[Data, int], Source]) -> None:
        """Check the recipe, claim the folder, read the data and compute the digests of the stages."""
        recipe, marker, launch = self.recipe, self.out / "recipe.json", Launch.here()
        if marker.exists() and (read_record(marker) or {}).get("name") != recipe.name:
            raise MarError(f"{self.out} holds a run of another recipe; choose another --out or delete it.")
        if recipe.evaluation is not None:
            DevEvaluator(recipe.evaluation)  # raises, before anything is trained
        self.sources = [read(entry, recipe.seed) for entry in used_entries(recipe)]
        self.data = {source.entry.name: data_digest(source.entry) for source in self.sources}
        self.digests = stage_digests(recipe, self.data)
        todo = [stage for index, stage in enumerate(recipe.stages) if not self.finished(index)]
        for stage in todo:
            launch.check(stage)
            self._check_negatives(stage)
        if torch.cuda.is_available():
            memory = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
            for line in short_of_memory(recipe, launch, memory, todo, self.sources):
                self._say(line)
        precision = recipe.precision
        if precision == "bf16" and not torch.cuda.is_available() and not is_native(torch.bfloat16):
            # Such a processor would compute the same, less precisely and several times slower.
            self._say("bf16: this processor has no instructions for bfloat16; the run computes in float32")
            precision = "fp32"
        self.sides = Sides(recipe, self.sources, precision)
        self.processes.wait_for_everyone()  # all have read the marker
        if self.main:
            self.out.mkdir(parents=True, exist_ok=True)
            write_json(marker, recipe.model_dump(mode="json"))
        for source in self.sources:
            self._say(f"data {source.entry.name}: {source.summary()}")
        if todo:
            root = (self.shared or self.out) / "vocabulary"
            if self.main:
                cut_backbones(recipe, self.sources, root, self._say)
            self.processes.wait_for_everyone()
            self.sides.cut = cut_backbones(recipe, self.sources, root, self._say)

    def _check_negatives(self, stage: Stage) -> None:
        """Refuse data without any of the hard negatives that a stage asks for, unless it mines its own."""
        if isinstance(stage, AlignStage | RetroMAEStage) or getattr(stage, "mine", None) is not None:
            return
        sources = {source.entry.name: source for source in self.sources}
        for entry in stage_entries(self.recipe, stage):
            triples = Triples.of(sources[entry.name].triples)
            if entry.negatives and not triples.negatives.any():
                with_negatives(triples, entry.name)  # raises

    def stage(self, index: int) -> None:
        """Run one stage unless it is finished."""
        stage, folder = self.recipe.stages[index], self.folder(index)
        with self._locked(folder.with_name(f"{folder.name}.lock")) if self.shared else nullcontext():
            if self.finished(index):
                self._say(f"stage {stage.name}: finished before, kept")
            else:
                self._say(f"stage {stage.name}: {stage.stage}")
                self._begin(folder, stage, self.digests[index])
                model = self._train(stage, folder)
                if self.main:
                    self._keep(model, folder, {"digest": self.digests[index], "stage": stage.name})
                del model
                if self.recipe.compile:
                    torch._dynamo.reset()
            self.processes.wait_for_everyone()
        for side in trained_sides(stage):
            self.sides.folders[side] = folder / "model"

    def _begin(self, folder: Path, stage: Stage, digest: str) -> None:
        """Make an empty folder, or keep the one that this stage has begun."""
        self.processes.wait_for_everyone()  # all have seen that it is not finished
        if self.main:
            begun = read_record(folder / BEGUN_FILE) or {}
            if folder.exists() and begun.get("digest") != digest:
                self._say(f"stage {stage.name}: the recipe or the data changed, so it is trained again")
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / BEGUN_FILE, {"digest": digest})
        self.processes.wait_for_everyone()

    def _keep(self, model: SentenceTransformer, folder: Path, marker: dict[str, str]) -> None:
        """Save the model of a finished stage, then the marker, then drop the checkpoints."""
        part = folder / "model.part"
        shutil.rmtree(part, ignore_errors=True)
        forget_lengths(model)
        model.save_pretrained(str(part), create_model_card=False)
        replace_folder(part, folder / "model")
        write_json(folder / DONE_FILE, marker)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)

    def _train(self, stage: Stage, folder: Path) -> SentenceTransformer:
        recipe = self.recipe
        settings = StageSettings(
            folder,
            stage_seed(recipe, stage),
            self.sides.precision,
            self.save_steps,
            recipe.evaluation,
            compile=recipe.compile,
            report_to=self.report_to,
            store=self.vectors or store_root(self.out),
        )
        entries = {entry.name: entry for entry in stage_entries(recipe, stage)}
        sources = [
            replace(source, entry=entries[source.entry.name])
            for source in self.sources
            if source.entry.name in entries
        ]
        set_seed(settings.seed)
        model: Any = self.sides.for_stage(stage)
        match stage:
            case RetroMAEStage():
                origin = self.sides.origin("query")
                head = None if origin is None else source_head(*origin)
                self._say(
                    f"stage {stage.name}: masked-LM head {'random' if head is None else 'of the source'}"
                )
                train_retromae(model, sources, stage, settings, head)
            case ContrastiveStage():
                if stage.mine is not None:
                    sources = [self._mined(model, source, stage, settings) for source in sources]
                train_contrastive(model, sources, stage, settings, recipe.prompts)
            case DistillStage():
                teacher: Any = self.sides.teacher(stage)
                train_distill(model, teacher, sources, stage, settings, recipe.prompts)
            case AlignStage():
                train_align(model, sources, stage, settings, recipe.prompts)
            case JointStage():
                teacher = self.sides.teacher(stage) if stage.kl_weight else None
                train_joint(model, sources, stage, settings, recipe.prompts, teacher=teacher)
        return model  # type: ignore[no-any-return]

    def _mined(
        self, model: SentenceTransformer, source: Source, stage: ContrastiveStage, settings: StageSettings
    ) -> Source:
        """Return a data entry with hard negatives, which the model finds among the documents of the entry.

        Negatives of the data are kept beside the mined ones, as in `mar mine`. Vectors are kept in the
        teacher store, so a killed run resumes. With several processes each mines all queries, with vectors
        that they encode together.
        """
        if source.form != "triples":
            raise MarError(
                f"stage {stage.name}: 'mine' needs triples; the data {source.entry.name!r} are "
                f"{source.form}. Leave this entry to another stage."
            )
        entry, options = source.entry, stage.mine
        assert options is not None  # noqa: S101 -- the caller has checked
        autocast = settings.precision == "bf16"
        teacher = encoder_teacher(model.eval(), settings.teacher_store(), entry, autocast=autocast)
        result = mine(
            [Dense(teacher, symmetric=entry.symmetric)],
            source.triples,
            rules=Rules(
                num_negatives=stage.negatives or 0,
                range_max=options.range_max,
                relative_margin=options.relative_margin,
                seed=settings.seed,
            ),
            symmetric=entry.symmetric,
            instructed=True,
        )
        queries, without = (result.counts[name] for name in ("queries", "queries without a mined negative"))
        self._say(
            f"stage {stage.name}: hard negatives from {entry.name} for {queries - without:,} of {queries:,} "
            f"queries; {result.counts['random negatives']:,} random ones"
        )
        return replace(source, triples=result.triples)

    def close(self) -> Path:
        """Copy the last stage's model to `out/model`, in the storage dtype of the recipe, with its card."""
        target, part, recipe = self.out / "model", self.out / "model.part", self.recipe
        if self.main:
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(self.folder(len(self.digests) - 1) / "model", part)
            if recipe.storage_dtype:
                store_as(part, recipe.storage_dtype)
            folders = {stage.name: self.folder(index) for index, stage in enumerate(recipe.stages)}
            write_card(part, recipe, self.data, folders)
            replace_folder(part, target)
        self.processes.wait_for_everyone()
        return target

    def _say(self, line: str) -> None:
        if self.main:
            self.say(line)
