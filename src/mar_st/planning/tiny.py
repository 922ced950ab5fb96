"""`--tiny`: a recipe in which only the sizes are changed, to try it in a minute per stage on a CPU.

Each backbone becomes random weights of a small configuration of the same architecture (model type, pooling,
rotary positions, grouped heads, tied embeddings), data become samples of the packaged mini edition in the
same forms, and dimensions, batches and lengths shrink with them.
"""

from __future__ import annotations

from typing import Any

from mar_st.errors import MarError
from mar_st.options import validated
from mar_st.planning.backbones import Shape, recipe_shapes
from mar_st.recipes.schema import Backbone, Data, Recipe, Side, Stage

#: Difference between two neighbouring widths or dimensions.
WIDTH_STEP = 16
#: Layers of a query encoder, and of a document encoder (deep enough to take a query encoder's layers from).
LAYERS: dict[Side, int] = {"query": 2, "document": 4}
HEADS, MAX_LENGTH, VOCABULARY = 4, 48, 600
#: Upper limits of settings of a stage.
LIMITS = {
    "batch_size": 8, "epochs": 1.0, "max_steps": 20, "mini_batch_size": 4, "mini_batch_tokens": 64,
    "negatives": 2, "lora_r": 4, "gradient_accumulation": 2,
}  # fmt: skip
#: Rows of a data entry.
ROWS = 64

RETRIEVAL_DATA = "package:medteb_mteb/MedTEBRetrieval"
STS_DATA = "package:medteb_mteb/MedTEBSTS/train.jsonl"


def shrink(recipe: Recipe) -> Recipe:
    """Return the same recipe on small random encoders and packaged data.

    It keeps stages with their losses, rates, schedules and flags, all names, precision, and which dimensions
    are equal to each other. Its losses mean nothing, because random encoders start so far apart.

    Args:
        recipe: Any recipe.

    Raises:
        MarError: A stage has a separate teacher model (`teacher`), which has no small counterpart, the shape
            of a backbone is not known, or `dim` does not fit it.
    """
    shapes = recipe_shapes(recipe)
    query = recipe.query and (recipe.query.projection or shapes["query"].width)
    if query is not None and query != recipe.dim:
        raise MarError(f"dim is {recipe.dim}, but vectors of the query encoder have {query} dimensions.")
    widths = _widths(recipe, shapes)
    content = recipe.model_dump()
    for side, backbone in recipe.backbones.items():
        content[side] = _backbone(side, backbone, shapes[side], widths)
    # Compiling takes longer than the training.
    content |= {"dim": widths[recipe.dim], "storage_dtype": None, "compile": False}
    # The small tokenizers split English prompts into single letters.
    content["prompts"] = {name: f"{name[:8]}:" for name in recipe.prompts}
    content["data"] = [_data(entry) for entry in recipe.data]
    content["stages"] = [_stage(stage, widths) for stage in recipe.stages]
    forms = {entry["name"]: entry["form"] for entry in content["data"]}
    for stage, small in zip(recipe.stages, content["stages"], strict=True):
        if small.get("mine"):  # which needs triples
            names = [e.name for e in recipe.data_of(stage) if forms[e.name] in ("auto", "triples")]
            small |= {"data": names} if names else {"mine": None}
    if recipe.evaluation is not None:
        content["evaluation"] |= {"path": RETRIEVAL_DATA, "split": "test", "metric": "ndcg@10"}
    return validated(Recipe, content, f"--tiny of {recipe.name}")


def _widths(recipe: Recipe, shapes: dict[Side, Shape]) -> dict[int, int]:
    """Return the small counterpart of every width and dimension; equality and order are kept."""
    numbers = {recipe.dim, *(shape.width for shape in shapes.values())}
    numbers.update(b.projection for b in recipe.backbones.values() if b.projection)
    for stage in recipe.stages:
        numbers.update(getattr(stage, "dims", ()))
    return {number: WIDTH_STEP * (rank + 2) for rank, number in enumerate(sorted(numbers))}


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
    heads, shared = shape.heads, config.get("num_key_value_heads")
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
    content["negatives"] = min(entry.negatives, LIMITS["negatives"])
    # A smaller share has too few rows for a batch.
    content["weight"] = max(entry.weight, LIMITS["batch_size"] / ROWS)
    if entry.form == "texts":
        name = "queries" if entry.role == "query" else "corpus"
        return content | {"path": f"{RETRIEVAL_DATA}/train/{name}.jsonl"}
    if entry.form in ("nli", "pairs") or entry.symmetric:
        # No packaged data has the three labels of NLI; scored pairs give the same columns.
        return content | {"path": STS_DATA, "form": "pairs"}
    return content | {"path": f"{RETRIEVAL_DATA}/train"}


def _stage(stage: Stage, widths: dict[int, int]) -> dict[str, Any]:
    if getattr(stage, "teacher", "document") not in ("query", "document"):
        raise MarError(f"stage {stage.name}: its teacher has no small counterpart; set teacher=document.")
    content = stage.model_dump()
    content |= {
        key: min(content[key], limit) for key, limit in LIMITS.items() if content.get(key) is not None
    }
    if "dims" in content:
        content["dims"] = tuple(widths[dim] for dim in content["dims"])
    return content
