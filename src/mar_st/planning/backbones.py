"""Shapes of backbones: the architecture of a published encoder, without its weights.

`backbones.yaml` holds the shapes of the backbones that shipped recipes use; others are read from a folder or
from the local cache of the Hub. Nothing is downloaded here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mar_st.errors import MarError
from mar_st.model.names import model_folder
from mar_st.model.native_gte import native_gte_config
from mar_st.modules.layout import listed_modules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.recipes.schema import Backbone, Recipe, Side

LISTING_FILE = Path(__file__).with_name("backbones.yaml")

#: Keys of a `config.json` that tell how a model was saved, not its architecture.
_NON_SHAPE_KEYS = (
    "architectures",
    "auto_map",
    "transformers_version",
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "_commit_hash",
)

#: Architectures that use a token's position only through `position_ids`: no attention bias or window by the
#: distance in the row, no positions computed from the tokens. For these `token_dropout` saves the work on
#: hidden tokens.
POSITION_IDS_ONLY = frozenset({"bert", "eurobert", "gpt_neox", "gte", "llama", "qwen2", "qwen3"})


@dataclass(frozen=True)
class Shape:
    """Architecture of an encoder: its configuration and the dtype of its published weights.

    Attributes:
        name: Source of the shape, for messages.
        config: transformers configuration values, `model_type` included.
        dtype: Dtype of its published weights: float32, float16 or bfloat16.
        head: Parameters of a linear layer after pooling.
    """

    name: str
    config: Mapping[str, Any]
    dtype: str = "float32"
    head: int = 0

    @property
    def width(self) -> int:
        """Return the width of its hidden states."""
        return int(self._value("hidden_size"))

    @property
    def layers(self) -> int:
        """Return the number of its layers."""
        return int(self._value("num_hidden_layers"))

    @property
    def heads(self) -> int:
        """Return the number of its attention heads."""
        return int(self._value("num_attention_heads"))

    def _value(self, name: str) -> Any:
        """Return a value of the configuration, which an architecture may call by another name."""
        if name in self.config:
            return self.config[name]
        from transformers import AutoConfig  # lazy: transformers

        return getattr(AutoConfig.for_model(**self.config), name)

    def with_layers(self, layers: int) -> Shape:
        """Return the same architecture with another number of layers."""
        config = {**self.config, "num_hidden_layers": layers}
        if self.config.get("layer_types"):
            config["layer_types"] = list(self.config["layer_types"])[:layers]
        return replace(self, config=config)


@dataclass(frozen=True)
class Counts:
    """Parameters of an encoder.

    Attributes:
        total: All parameters, including a linear layer after pooling but not a language-model head.
        embeddings: Parameters of the token embeddings.
        linear: Weights that multiply every token's hidden state.
        adapter: Parameters of LoRA adapters of rank 1 on these.
    """

    total: int
    embeddings: int
    linear: int
    adapter: int


@lru_cache(maxsize=1)
def known_backbones() -> dict[str, Shape]:
    """Return the shapes that come with the package, by Hub name."""
    listing = yaml.safe_load(LISTING_FILE.read_text(encoding="utf-8"))
    return {name: Shape(name, entry["config"], entry["dtype"]) for name, entry in listing.items()}


def shape_of(backbone: Backbone, document: Backbone | None = None) -> Shape:
    """Return the shape of a recipe's backbone.

    Args:
        backbone: One side of a recipe.
        document: The document side, for a query side that is `layers_of_document`.

    Raises:
        MarError: A `source` is neither a known name, nor a folder, nor in the local cache of the Hub.
    """
    if backbone.layers_of_document is not None:
        shape, kept = shape_of(document), backbone.layers_of_document  # type: ignore[arg-type]
        if max(kept) >= shape.layers:
            raise MarError(
                f"layers_of_document names layer {max(kept)}, but {shape.name} has {shape.layers} layers, "
                f"0 to {shape.layers - 1}."
            )
        shape = shape.with_layers(len(kept))
    elif backbone.config is not None:
        config = {"vocab_size": backbone.tokenizer.vocab_size, **backbone.config}  # type: ignore[union-attr]
        shape = Shape(f"random {config['model_type']}", config)
    else:
        shape = source_shape(backbone.source, backbone.revision)  # type: ignore[arg-type]
        if backbone.vocabulary is not None:
            rows = min(backbone.vocabulary.keep, int(shape.config["vocab_size"]))
            shape = replace(shape, config={**shape.config, "vocab_size": rows})
    if backbone.projection is not None:
        shape = replace(shape, head=(shape.width + 1) * backbone.projection)
    return shape


def source_shape(source: str, revision: str | None = None) -> Shape:
    """Return the shape of a folder, a known backbone, or a model in the local cache of the Hub.

    Raises:
        MarError: The source is none of these.
    """
    folder = model_folder(source)
    if folder is None and source in known_backbones():
        return known_backbones()[source]
    if folder is not None and (folder / "modules.json").is_file():
        folder = listed_modules(folder)[0].path
    from transformers import PretrainedConfig  # lazy: transformers

    try:
        content, _ = PretrainedConfig.get_config_dict(
            str(folder or source), revision=revision, local_files_only=True
        )
        if content.get("model_type") == "new":
            content = native_gte_config(content)
        dtype = content.get("dtype") or content.get("torch_dtype") or "float32"
        config = {key: value for key, value in content.items() if key not in _NON_SHAPE_KEYS}
        return Shape(source, {"model_type": content["model_type"], **config}, dtype)
    except (OSError, ValueError, KeyError) as error:
        raise MarError(
            f"The shape of {source!r} is not known: it has no readable config.json of a transformers model, "
            f"as a folder or in the local cache of the Hub ({type(error).__name__}), and is not among "
            f"{', '.join(known_backbones())}. Download it once, or give its folder."
        ) from error


def recipe_shapes(recipe: Recipe) -> dict[Side, Shape]:
    """Return the shapes of the sides that a recipe has."""
    return {side: shape_of(backbone, recipe.document) for side, backbone in recipe.backbones.items()}


def meta_model(shape: Shape) -> Any:
    """Return the encoder on the meta device: its parameters have shapes and no values."""
    import torch  # lazy: torch
    from transformers import AutoConfig, AutoModel  # lazy: transformers

    try:
        config = AutoConfig.for_model(**shape.config)
    except (ValueError, TypeError) as error:
        raise MarError(f"The configuration of {shape.name} is not one of transformers: {error}") from error
    with torch.device("meta"):
        return AutoModel.from_config(config)  # type: ignore[no-untyped-call]


def count(shape: Shape) -> Counts:
    """Return the parameters of an encoder, counted on the meta device."""
    counts = _count(json.dumps(dict(shape.config), sort_keys=True))
    return replace(counts, total=counts.total + shape.head)


@lru_cache(maxsize=64)
def _count(config: str) -> Counts:
    from torch import nn  # lazy: torch

    model = meta_model(Shape("backbone", json.loads(config)))
    # The pooler of BERT sees one token of a text, and no encoder here uses it.
    layers = [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and "pooler" not in name
    ]
    return Counts(
        total=sum(parameter.numel() for parameter in model.parameters()),
        embeddings=model.get_input_embeddings().weight.numel(),
        linear=sum(weight.numel() for weight in layers),
        adapter=sum(sum(weight.shape) for weight in layers),
    )
