"""The two set-ups of `benchmarks/train.py`: `mar train`'s stages, and sentence-transformers' trainer.

Shapes: `small` is mar-small's, `published` that of mar-0.3b-4b, `tiny` a small one of its architectures.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TEMPERATURE = 0.05

#: Hidden sizes of both encoders.
WIDTHS = {
    "small": {"query": 256, "document": 512},
    "published": {"query": 768, "document": 2560},
    "tiny": {"query": 32, "document": 64},
}


@dataclass(frozen=True)
class Case:
    """One measurement."""

    shape: str
    stage: str
    length: str
    setup: str
    batch: int
    mini_batch: int | None
    compile: bool
    steps: int
    warm_up: int
    texts: str | None
    every: int = 20  # steps between two records of `mar train`; warm_up is a multiple of it
    weights: str | None = None  # folder where encoders of `published` and `tiny` are kept; default none

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def recipe_of(case: Case, folder: Path, data: Path) -> Any:
    """The recipe whose backbones, adapters and rates both set-ups take."""
    from mar_st.recipes.schema import Recipe

    small = case.shape == "small"
    lora = (
        {} if small else {"lora_r": 32, "lora_alpha": 64, "lora_dropout": 0.1, "gradient_checkpointing": True}
    )
    width = WIDTHS[case.shape]
    dims = {"dims": list(width.values())}
    common = {"batch_size": case.batch, "max_steps": case.steps, "learning_rate": 1e-4, "length_groups": 16}
    parts = {"mini_batch_size": case.mini_batch} if case.mini_batch else {}
    warm = {"temperature": TEMPERATURE}
    stages = {
        "contrastive-query": {"stage": "contrastive", "side": "query", **common, **parts, **warm},
        "contrastive-document": {
            "stage": "contrastive",
            "side": "document",
            **common,
            **parts,
            **warm,
            **dims,
            **lora,
        },
        "align": {"stage": "align", **common, "temperature": TEMPERATURE, "mse_weight": 0.0},
        "joint": {"stage": "joint", **common, **parts, **warm, **lora},
    }
    used = sides_of(case.stage)
    pooling = {"query": "mean", "document": "mean"} if small else {"query": "cls", "document": "lasttoken"}
    limit = 64 if case.shape == "tiny" else 128 if small and case.length == "real" else 512
    sides = {
        side: {"source": str(folder / side), "max_length": limit, "pooling": pooling[side]}
        if side in used
        else None
        for side in width
    }
    entry: dict[str, Any] = {"name": "rows", "path": str(data), "negatives": 1, "prompt": ""}
    if case.stage == "align":
        entry = {"name": "rows", "path": str(data), "form": "texts", "role": "document"}
    return Recipe.model_validate(
        {
            "name": "bench",
            "description": "one stage",
            "dim": width[used[0]] if len(used) == 1 else width["query"],
            "precision": "bf16",
            "compile": case.compile and case.setup == "mar",
            **sides,
            "data": [entry],
            "stages": [{"name": "stage", **stages[case.stage]}],
        }
    )


def write_encoders(case: Case, folder: Path, sides: Iterable[str], texts: list[str]) -> None:
    """Random weights; `small` with a tokenizer trained on the texts, the others as published."""
    if case.shape != "small":
        from published_shapes import GTE, QWEN_4B, write_backbone

        names = {"query": GTE, "document": QWEN_4B}
        for side in sides:
            write_backbone(names[side], folder / side, tiny=case.shape == "tiny")
        return
    import torch
    from transformers import AutoConfig, AutoModel

    from mar_st.model.encoders import write_encoder
    from mar_st.model.tokenizers import train_tokenizer
    from mar_st.recipes.load import load_recipe

    base = load_recipe("mar-small")
    for side in sides:
        backbone = getattr(base, side)
        size = backbone.tokenizer.vocab_size
        tokenizer = train_tokenizer(texts, "query", vocab_size=size, max_token_length=2)
        config = {**backbone.config, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        torch.manual_seed(0)
        model = AutoModel.from_config(AutoConfig.for_model(**config))
        (folder / side).mkdir(parents=True)
        write_encoder(model, tokenizer, folder / side)


def sides_of(stage: str) -> tuple[str, ...]:
    """The encoders that a stage works with."""
    one = {"contrastive-query": ("query",), "contrastive-document": ("document",)}
    return one.get(stage, ("query", "document"))


def rows_of(case: Case) -> list[dict[str, str]]:
    """Rows of query, positive and negative, as they are or drawn out to 512 tokens and more."""
    from mar_st.data.training import read_source
    from mar_st.recipes.schema import Data

    path = case.texts or "package:medteb_mteb/MedTEBRetrieval/train"
    source = read_source(Data(name="rows", path=path, prompt=""), 0)
    rows = [
        {"query": t.query, "positive": t.positives[0], "negative": t.negatives[0]}
        for t in source.triples
        if t.negatives
    ]
    if len(rows) < 4 * case.batch:
        raise SystemExit(
            f"{path} has {len(rows)} rows with negatives; give at least {4 * case.batch}, or lower --batch."
        )
    rows = rows[: case.batch * case.steps]
    if case.length == "real":
        return rows
    long = [text for row in rows for text in (row["positive"], row["negative"])]
    return [
        {name: text + "".join(long[(7 * i + j) % len(long)] for j in range(12)) for name, text in row.items()}
        for i, row in enumerate(rows)
    ]


def operations(
    recipe: Any, rows: list[dict[str, str]], columns: dict[str, str]
) -> tuple[float, float, float]:
    """Of a row: useful operations, those with recomputation, tokens; no weights are loaded.

    Args:
        recipe: Its first stage counts.
        rows: Texts by column.
        columns: The side that encodes each column.
    """
    from transformers import AutoTokenizer

    from mar_st.planning.backbones import shape_of
    from mar_st.planning.costs import Training, training_flops
    from mar_st.planning.launch import Launch
    from mar_st.planning.plan import Planner

    planner = Planner(recipe, Launch())
    flops = executed = tokens = 0.0
    sample = rows[:500]
    for column, side in columns.items():
        backbone = getattr(recipe, side)
        shape = shape_of(backbone)
        asked = planner.training(recipe.stages[0], side)
        training = Training(asked.mode, lora_r=asked.lora_r)
        tokenizer = AutoTokenizer.from_pretrained(backbone.source)
        texts = [row[column] for row in sample]
        for ids in tokenizer(texts, truncation=True, max_length=backbone.max_length)["input_ids"]:
            flops += training_flops(shape, 1, len(ids), training)
            executed += training_flops(shape, 1, len(ids), asked)
            tokens += len(ids)
    return flops / len(sample), executed / len(sample), tokens / len(sample)


def planned_bytes(recipe: Any) -> float:
    """Memory of the stage on one device, as `mar train --dry-run` predicts it."""
    from mar_st.planning.plan import plan

    return plan(recipe)[0].memory["peak"]


def peak_memory() -> float:
    """Peak memory so far, in GB: of torch's tensors on CUDA, else of the process."""
    import resource

    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def reserved_gb() -> float | None:
    """Most memory that torch held on the GPU so far, in GB; none without one."""
    import torch

    return torch.cuda.max_memory_reserved() / 1e9 if torch.cuda.is_available() else None


def run_mar(case: Case, recipe: Any, folder: Path) -> dict[str, float | None]:
    """A stage as `mar train` runs it; speed from its own records."""
    from mar_st.runs.train import train
    from mar_st.stages import trainer

    trainer.LOGGING_STEPS = case.every
    began = time.perf_counter()
    out = train(recipe, folder / "run", save_steps=10**6)
    wall = time.perf_counter() - began
    records = trainer.read_metrics(out.parent / "01-stage" / "metrics.jsonl")
    (summary,) = [row for row in records if "train_runtime" in row]
    kept = [row for row in records if "loss" in row and row["step"] > case.warm_up]
    texts = 1 if case.stage == "align" else 3
    steps = [row["step"] for row in kept]
    before = [case.warm_up, *steps[:-1]]
    seconds = sum(
        (step - last) * case.batch * texts / row["texts_per_second"]
        for row, step, last in zip(kept, steps, before, strict=True)
    )
    return {
        "rows_per_second": (steps[-1] - case.warm_up) * case.batch / seconds,
        "memory_gb": peak_memory(),
        "reserved_gb": reserved_gb(),
        "outside_training_s": wall - summary["train_runtime"],
    }


def run_plain(
    case: Case, recipe: Any, model: Any, rows: list[dict[str, str]], folder: Path
) -> dict[str, float | None]:
    """The same step with sentence-transformers' own trainer and losses."""
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.training_args import BatchSamplers
    from transformers import TrainerCallback

    stage = recipe.stages[0]
    cuda = torch.cuda.is_available()
    if case.stage == "align":
        data = Dataset.from_dict({"anchor": [r["text"] for r in rows], "positive": [r["text"] for r in rows]})
        routes = {"anchor": "query", "positive": "document"}
    else:
        data = Dataset.from_list(rows)
        routes = {"query": "query", "positive": "document", "negative": "document"}
    if len(list(model.children())) and "Router" not in {type(m).__name__ for m in model.children()}:
        routes = {}
    options: dict[str, Any] = {"scale": 1 / TEMPERATURE}
    loss: Any
    if stage.mini_batch_size:
        loss = losses.CachedMultipleNegativesRankingLoss(
            model, mini_batch_size=stage.mini_batch_size, **options
        )
    else:
        loss = losses.MultipleNegativesRankingLoss(model, **options)
    if getattr(stage, "dims", ()):
        loss = losses.MatryoshkaLoss(model, loss, list(stage.dims))
    stamps: dict[int, float] = {}

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            del args, control, kwargs
            if state.global_step in (case.warm_up, case.steps):
                if cuda:
                    torch.cuda.synchronize()
                stamps[state.global_step] = time.perf_counter()

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "plain"),
        max_steps=case.steps,
        per_device_train_batch_size=case.batch,
        learning_rate=stage.learning_rate,
        bf16=True,
        use_cpu=not cuda,
        batch_sampler=BatchSamplers.NO_DUPLICATES if case.stage != "align" else BatchSamplers.BATCH_SAMPLER,
        router_mapping=routes,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=20,
        dataloader_pin_memory=cuda,
    )
    if stage.gradient_checkpointing:
        # Not by the arguments: transformers 5.17 passes some that sentence-transformers 6.0 does not take.
        # The keyword is needed by LoRA: nothing below the first layer has a gradient.
        model.gradient_checkpointing_enable({"use_reentrant": False})
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[Clock()]
    )
    trainer.train()
    seconds = stamps[case.steps] - stamps[case.warm_up]
    return {
        "rows_per_second": (case.steps - case.warm_up) * case.batch / seconds,
        "memory_gb": peak_memory(),
        "reserved_gb": reserved_gb(),
        "outside_training_s": 0.0,
    }


def plain_model(case: Case, recipe: Any) -> Any:
    """The model as sentence-transformers' documentation builds it: one encoder, or a Router with two."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer.modules import Normalize

    from mar_st.model.encoders import load_encoder
    from mar_st.modules.arrangement import truncation

    stage = recipe.stages[0]
    modules: dict[str, list[Any]] = {}
    for side in ("query", "document"):
        backbone = getattr(recipe, side)
        if backbone is not None:
            modules[side] = load_encoder(
                backbone.source, side, max_length=backbone.max_length, pooling=backbone.pooling
            )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if len(modules) == 1:
        model = SentenceTransformer(modules=[*next(iter(modules.values())), Normalize()], device=device)
    else:
        document = [
            *modules["document"],
            truncation(modules["document"][-1].get_embedding_dimension(), recipe.dim),
            Normalize(),
        ]
        router = Router.for_query_document([*modules["query"], Normalize()], document)
        model = SentenceTransformer(modules=[router], device=device)
    if getattr(stage, "lora_r", None):
        from peft import LoraConfig

        config = LoraConfig(
            r=stage.lora_r,
            lora_alpha=stage.lora_alpha,
            lora_dropout=stage.lora_dropout,
            target_modules="all-linear",
        )
        modules["document"][0].model.add_adapter(config)
    if case.stage == "align":
        for module in modules["document"]:
            module.requires_grad_(False)
    return model
