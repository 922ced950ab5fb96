"""Running a recipe: stage after stage, each resumable, each leaving a model folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from transformers import AutoConfig, set_seed
from transformers.utils import logging

from mar_st.card import data_digest, write_card
from mar_st.data import Source, read_triples
from mar_st.encoders import load_encoder
from mar_st.errors import MarError
from mar_st.model import MAR
from mar_st.packing import pack
from mar_st.schema import AlignStage, Backbone, ContrastiveStage, Recipe
from mar_st.stages.align import train_align
from mar_st.stages.contrastive import train_contrastive
from mar_st.stages.joint import train_joint
from mar_st.stages.trainer import Settings
from mar_st.tokenizers import train_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentence_transformers.base.modules.module import Module

    from mar_st.encoders import EncoderSource, Role
    from mar_st.schema import Stage

logger = logging.get_logger(__name__)

DONE = "done.json"


class TrainError(MarError):
    """A run that cannot start or go on; the message says what to do."""


def train(
    recipe: Recipe, out: str | Path, *, save_steps: int = 200, say: Callable[[str], None] = logger.info
) -> Path:
    """Run a recipe, or go on with a run that was interrupted.

    Args:
        recipe: What to train.
        out: Run folder. A finished stage is kept; an unfinished one goes on from its last checkpoint.
        save_steps: Steps between checkpoints.
        say: Receives one line per stage.

    Returns:
        Folder of the finished model (`out/model`), a plain sentence-transformers folder.

    Raises:
        TrainError: The folder belongs to another recipe.
        DataError: Training data are missing or broken.
    """
    run = _Run(recipe, Path(out), save_steps, say)
    run.open()
    for index, stage in enumerate(recipe.stages):
        run.stage(index, stage)
    return run.close()


def digest(recipe: Recipe, data_digests: Sequence[str], stages: int | None = None) -> str:
    """Identity of a recipe and its data, up to and with its first `stages` stages (all by default)."""
    content = recipe.model_dump(mode="json", exclude={"description", "storage_dtype"})
    content["stages"] = content["stages"][:stages]
    content["data_digests"] = list(data_digests)
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@dataclass
class _Run:
    recipe: Recipe
    out: Path
    save_steps: int
    say: Callable[[str], None]
    sources: list[Source] = field(default_factory=list)
    data_digests: list[str] = field(default_factory=list)
    #: Model folder of each side, and of the whole once the sides are joined.
    folders: dict[str, Path] = field(default_factory=dict)

    def open(self) -> None:
        """Claim the folder and read the data."""
        self.out.mkdir(parents=True, exist_ok=True)
        marker = self.out / "recipe.json"
        mine = self.recipe.model_dump(mode="json")
        if marker.exists() and json.loads(marker.read_text(encoding="utf-8"))["name"] != mine["name"]:
            raise TrainError(f"{self.out} holds a run of another recipe; choose another --out or delete it.")
        _write(marker, json.dumps(mine, indent=2, ensure_ascii=False))
        self.sources = [Source(entry, read_triples(entry.path)) for entry in self.recipe.data]
        self.data_digests = [data_digest(source.path) for source in self.recipe.data]
        for source in self.sources:
            self.say(f"data {source.entry.name}: {len(source.triples)} triples")

    def stage(self, index: int, stage: Stage) -> None:
        """Run one stage, unless it is finished."""
        folder = self.out / f"{index + 1:02d}-{stage.name}"
        model_folder, marker = folder / "model", folder / DONE
        identity = digest(self.recipe, self.data_digests, index + 1)
        side = stage.side if isinstance(stage, ContrastiveStage) else "both"
        if marker.exists() and json.loads(marker.read_text())["digest"] == identity:
            self.say(f"stage {stage.name}: finished before, kept")
        else:
            stale = folder / "identity"
            if folder.exists() and (not stale.exists() or stale.read_text() != identity):
                self.say(f"stage {stage.name}: the recipe or the data changed, so it is trained anew")
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
            _write(stale, identity)
            self.say(f"stage {stage.name}: {stage.stage}")
            model = self._train(stage, folder)
            part = folder / "model.part"
            shutil.rmtree(part, ignore_errors=True)
            model.save_pretrained(str(part), create_model_card=False)
            shutil.rmtree(model_folder, ignore_errors=True)
            part.rename(model_folder)
            _write(marker, json.dumps({"digest": identity, "stage": stage.name}))
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        self.folders[side] = model_folder

    def _train(self, stage: Stage, folder: Path) -> SentenceTransformer:
        settings = Settings(folder, self.recipe.seed, self.recipe.precision, self.save_steps)
        used = {entry.name for entry in self.recipe.data_of(stage)}
        sources = [source for source in self.sources if source.entry.name in used]
        negatives = getattr(stage, "negatives", None)
        if negatives is not None:
            change = {"negatives": negatives}
            sources = [replace(source, entry=source.entry.model_copy(update=change)) for source in sources]
        arguments = (sources, stage, settings, self.recipe.prompts)
        set_seed(settings.seed)
        if isinstance(stage, ContrastiveStage):
            model: Any = SentenceTransformer(modules=[*self._side(stage.side), Normalize()])
            train_contrastive(model, *arguments)  # type: ignore[arg-type]
            return self._named(model)
        model = self._whole()
        if isinstance(stage, AlignStage):
            train_align(model, *arguments)  # type: ignore[arg-type]
        else:
            train_joint(model, *arguments)  # type: ignore[arg-type]
        return model  # type: ignore[no-any-return]

    def _named(self, model: SentenceTransformer) -> SentenceTransformer:
        model.prompts = {"document": "", **self.recipe.prompts}
        return model

    def _whole(self) -> MAR:
        if "both" in self.folders:
            return MAR(str(self.folders["both"]))
        return MAR.from_modules(
            self._side("query"),
            self._side("document"),
            dim=self.recipe.dim,
            renormalise=self.recipe.renormalise,
            prompts=self.recipe.prompts,
        )

    def _side(self, role: Role) -> list[Module]:
        """Modules of one side, from the stage that trained it last, else from the backbone."""
        backbone = getattr(self.recipe, role)
        if role in self.folders:
            # The pooling of the saved stage is the one that load_encoder gives its role.
            return load_encoder(self.folders[role], role, max_length=backbone.max_length)
        return load_encoder(self._source(backbone, role), role, max_length=backbone.max_length)

    def _source(self, backbone: Backbone, role: Role) -> EncoderSource:
        if backbone.source is not None:
            return backbone.source
        assert backbone.config is not None  # noqa: S101 -- the recipe's validator saw to it
        assert backbone.tokenizer is not None  # noqa: S101
        texts = dict.fromkeys(
            text
            for source in self.sources
            for t in source.triples
            for text in (t.query, *t.positives, *t.negatives)
        )
        tokenizer = train_tokenizer(
            texts, role, max_length=backbone.max_length, **backbone.tokenizer.model_dump()
        )
        settings = {**backbone.config, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        for name in ("bos_token_id", "eos_token_id"):
            settings.setdefault(name, getattr(tokenizer, name))
        config = AutoConfig.for_model(**settings)
        # Both sides must not start from one stream of random numbers, nor depend on the order of the stages.
        torch.manual_seed(self.recipe.seed + (0 if role == "query" else 1))
        return config, tokenizer

    def close(self) -> Path:
        """Copy the last stage's model to `out/model`, in the storage dtype of the recipe, with its card."""
        last = self.out / f"{len(self.recipe.stages):02d}-{self.recipe.stages[-1].name}" / "model"
        target, part = self.out / "model", self.out / "model.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(last, part)
        if self.recipe.storage_dtype:
            pack(part, self.recipe.storage_dtype)
        write_card(part, self.recipe, self.data_digests)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        self.say(f"model: {target}")
        return target


def _write(path: Path, text: str) -> None:
    """Write a whole file or none: a run may be killed at any time."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
