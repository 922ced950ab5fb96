"""`--tiny`: a recipe in which only the sizes are changed.

Each backbone becomes random weights of a small configuration of the same architecture (model type, pooling,
rotary positions, grouped heads, tied embeddings), data become samples of the packaged mini edition in the
same forms, and dimensions, batches and lengths shrink with them. Its rehearsal takes a minute on a CPU.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mar_st.data import locate
from mar_st.errors import MarError
from mar_st.planning.backbones import Shape, side_shapes
from mar_st.recipes.schema import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from mar_st.recipes.schema import Backbone, Data, Side, Stage

#: Hidden sizes: the narrower encoder of a recipe, the wider one.
WIDTHS = (32, 64)
#: Layers of a query encoder, and of a document encoder (deep enough to take a query encoder's layers from).
LAYERS: dict[str, int] = {"query": 2, "document": 4}
HEADS = 4
MAX_LENGTH = 32
BATCH_SIZE = 8
MINI_BATCH_SIZE = 4
MINI_BATCH_TOKENS = 64
ROWS = 64
NEGATIVES = 2
VOCABULARY = 600

RETRIEVAL_DATA = "package:medteb_mteb/MedTEBRetrieval"
STS_DATA = "package:medteb_mteb/MedTEBSTS/train.jsonl"


class TinyError(MarError):
    """A recipe that cannot be shrunk; the message says why."""


def shrink(recipe: Recipe, dtype: str | None = None) -> Recipe:
    """Return the same recipe on small random encoders and packaged data.

    It keeps stages with their losses, rates, schedules and flags, all names, which dimensions are equal to
    each other, prompts and precision.

    Args:
        recipe: Any recipe.
        dtype: Dtype of both backbones instead of their own `dtype`: `float32`, `float16` or `bfloat16`. Below
            float32 the recipe computes in bf16.

    Returns:
        A recipe that trains in seconds per stage on a CPU. Its losses mean nothing, because random encoders
        start so far apart.

    Raises:
        TinyError: A stage has a separate teacher model (`teacher`), which has no small counterpart.
        BackboneError: The shape of a backbone is not known.
    """
    if dtype not in (None, "float32", "float16", "bfloat16"):
        raise TinyError(f"dtype is float32, float16 or bfloat16; got {dtype!r}.")
    shapes = side_shapes(recipe.query, recipe.document)
    widths = _widths(recipe, shapes)
    content = recipe.model_dump()
    for side in ("query", "document"):
        backbone: Backbone | None = getattr(recipe, side)
        if backbone is not None:
            content[side] = _backbone(side, backbone, shapes[side], widths)
            content[side]["dtype"] = dtype or backbone.dtype
            content[side]["attn_implementation"] = None  # may need a GPU
    if dtype not in (None, "float32"):
        content["precision"] = "bf16"
    content["dim"] = widths[recipe.dim]
    content["storage_dtype"] = None
    content["compile"] = False  # compiling takes longer than the training
    content["data"] = [_data(entry) for entry in recipe.data]
    content["stages"] = [_stage(stage, widths) for stage in recipe.stages]
    for stage, small in zip(recipe.stages, content["stages"], strict=True):
        if small.get("mine"):
            _mine(small, recipe.data_of(stage), {entry["name"]: entry["form"] for entry in content["data"]})
    if recipe.evaluation is not None:
        content["evaluation"] |= {"path": RETRIEVAL_DATA, "tasks": None, "split": "test"}
    return Recipe.model_validate(content)


def write_evaluation(folder: Path, *, queries: int = 20, documents: int = 100) -> Path:
    """Write the first queries of the packaged edition with their documents and some more, for quick checks.

    Args:
        folder: Output folder; existing files are overwritten.
        queries: Queries kept.
        documents: Documents kept in addition to those in the qrels of the kept queries.

    Returns:
        The folder: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`.

    Raises:
        MarError: The packaged edition is not installed.
    """
    root = locate(RETRIEVAL_DATA)
    query_lines = (root / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:queries]
    names = {json.loads(line)["_id"] for line in query_lines}
    header, *rows = (root / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    kept = [row for row in rows if row.split("\t")[0] in names]
    needed = {row.split("\t")[1] for row in kept}
    lines = (root / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    corpus = [line for i, line in enumerate(lines) if i < documents or json.loads(line)["_id"] in needed]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("corpus.jsonl", corpus),
        ("queries.jsonl", query_lines),
        ("qrels/test.tsv", [header, *kept]),
    ):
        (folder / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    return folder


def _widths(recipe: Recipe, shapes: dict[Side, Shape]) -> dict[int, int]:
    """Return the small counterpart of every width and dimension; equality and order are kept.

    Hidden sizes become `WIDTHS`; numbers between two of them are spread evenly between their counterparts.
    """
    hidden = sorted({shape.width for shape in shapes.values()})
    fixed = dict(zip(hidden, WIDTHS, strict=False))
    numbers: set[int] = {recipe.dim, *hidden}
    numbers.update(b.projection for b in (recipe.query, recipe.document) if b is not None and b.projection)
    for stage in recipe.stages:
        numbers.update(getattr(stage, "dims", ()))
    result: dict[int, int] = {}
    low, run = 0, []
    for number in sorted(numbers):
        if number not in fixed:
            run.append(number)
            continue
        result |= _spread(run, low, fixed[number]) | {number: fixed[number]}
        low, run = fixed[number], []
    return result | {number: low + 8 * (index + 1) for index, number in enumerate(run)}


def _spread(numbers: Iterable[int], low: int, high: int) -> dict[int, int]:
    inside = list(numbers)
    if len(inside) > high - low - 1:
        raise TinyError(f"{len(inside)} dimensions do not fit between {low} and {high}.")
    step = (high - low) / (len(inside) + 1)
    return {number: low + round(step * (index + 1)) for index, number in enumerate(inside)}


def _backbone(side: Side, backbone: Backbone, shape: Shape, widths: dict[int, int]) -> dict[str, Any]:
    content = backbone.model_dump()
    content["max_length"] = min(backbone.max_length, MAX_LENGTH)
    if backbone.projection is not None:
        content["projection"] = widths[backbone.projection]
    if backbone.layers_of_document is not None:
        kept = min(len(backbone.layers_of_document), LAYERS["document"] - 1)
        first = 0 if backbone.layers_of_document[0] == 0 else LAYERS["document"] - kept
        return content | {"layers_of_document": tuple(range(first, first + kept))}
    return content | {
        "source": None,
        "revision": None,
        "vocabulary": None,
        "config": small_config(shape, widths[shape.width], LAYERS[side]),
        "tokenizer": {"vocab_size": VOCABULARY, "max_token_length": 4},
    }


def small_config(shape: Shape, width: int, layers: int) -> dict[str, Any]:
    """Return a small configuration of the same architecture.

    Attention keeps its kind (one, several or all heads share keys), and so does a head size that is not
    `width / heads`; values that are not sizes are kept.
    """
    config = {key: value for key, value in shape.config.items() if not key.endswith("_token_id")}
    heads, shared = int(config["num_attention_heads"]), config.get("num_key_value_heads")
    config |= {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * width,
        "max_position_embeddings": 4 * MAX_LENGTH,
        # About 1 / sqrt(width); 0.02 would leave vectors of this width nearly constant.
        "initializer_range": round(width**-0.5, 3),
    }
    if shared is not None:
        config["num_key_value_heads"] = HEADS if shared == heads else 1 if shared == 1 else 2
    if config.get("head_dim") is not None:
        ratio = int(config["head_dim"]) * heads / shape.width
        config["head_dim"] = 2 * round(width / HEADS * ratio / 2)
    if config.get("sliding_window") is not None:
        config["sliding_window"] = MAX_LENGTH
    if "layer_types" in config:
        config["layer_types"] = (config["layer_types"] * layers)[:layers]
    config.pop("vocab_size", None)
    return config


def _data(entry: Data) -> dict[str, Any]:
    """Return a packaged sample in the form of the entry."""
    content = entry.model_dump()
    content |= {"limit": ROWS, "expected_rows": None, "columns": {}, "where": {}, "instruction": None}
    content["negatives"] = min(entry.negatives, NEGATIVES)
    content["weight"] = max(entry.weight, BATCH_SIZE / ROWS)  # a smaller share has too few rows for a batch
    if entry.form == "texts":
        name = "queries" if entry.role == "query" else "corpus"
        return content | {"path": f"{RETRIEVAL_DATA}/train/{name}.jsonl"}
    if entry.form == "labelled-pairs":
        return content | {"path": STS_DATA, "columns": {"label": "score"}}
    if entry.form in ("nli", "scored-pairs") or entry.symmetric:
        # No packaged data has the three labels of NLI; scored pairs give the same columns.
        return content | {"path": STS_DATA, "form": "scored-pairs"}
    return content | {"path": f"{RETRIEVAL_DATA}/train"}


def _mine(stage: dict[str, Any], entries: Sequence[Data], forms: Mapping[str, str]) -> None:
    """Leave out the entries of a stage whose packaged sample has no triples, which mining needs."""
    minable = [entry.name for entry in entries if forms[entry.name] in ("auto", "triples")]
    stage |= {"data": minable} if minable else {"mine": None}


def _stage(stage: Stage, widths: dict[int, int]) -> dict[str, Any]:
    teacher = getattr(stage, "teacher", "document")
    if teacher not in ("query", "document"):
        raise TinyError(
            f"stage {stage.name} learns from {teacher!r}, which has no small counterpart; "
            "set its teacher to 'document' to try the rest."
        )
    content = stage.model_dump()
    content["batch_size"] = min(stage.batch_size, BATCH_SIZE)
    content["epochs"] = min(stage.epochs, 1.0)
    content.pop("resume_head", None)  # of a larger encoder
    if stage.max_steps is not None:
        content["max_steps"] = min(stage.max_steps, 20)
    if stage.mini_batch_size is not None:
        content["mini_batch_size"] = min(stage.mini_batch_size, MINI_BATCH_SIZE)
    if stage.mini_batch_tokens is not None:
        content["mini_batch_tokens"] = min(stage.mini_batch_tokens, MINI_BATCH_TOKENS)
    if content.get("negatives") is not None:
        content["negatives"] = min(content["negatives"], NEGATIVES)
    if content.get("lora_r") is not None:
        content["lora_r"] = 4
    if "dims" in content:
        content["dims"] = tuple(widths[dim] for dim in content["dims"])
    return content
