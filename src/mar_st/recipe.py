"""Recipes: one YAML file describes one model, as an ordered list of training stages."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mar_st.errors import MarError

RECIPES = Path(__file__).parent / "recipes"

#: A later kind builds on what the earlier ones trained.
ORDER = ("contrastive", "align", "joint")


class RecipeError(MarError):
    """A recipe that cannot be run; the message names the file and the key."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TokenizerConfig(_Strict):
    """A tokenizer trained on the texts of the recipe: byte-pair encoding that starts from characters."""

    vocab_size: int = Field(gt=16)
    max_token_length: int = Field(
        default=4, ge=1, description="characters per token at most; 1 is character-level"
    )


class Backbone(_Strict):
    """One encoder: pre-trained (`source`) or random weights (`config` and `tokenizer`)."""

    source: str | None = None
    config: dict[str, Any] | None = None
    tokenizer: TokenizerConfig | None = None
    max_length: int = Field(default=512, ge=8)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.source is None) == (self.config is None):
            raise ValueError(
                "give either 'source' (folder or Hub name) or 'config' (random weights), not both"
            )
        if (self.config is None) != (self.tokenizer is None):
            raise ValueError("'tokenizer' goes with 'config'; a 'source' brings its own")
        if self.config is not None and "model_type" not in self.config:
            raise ValueError("'config' needs 'model_type', for instance gte or qwen3")
        return self


class Data(_Strict):
    """One source of triples and how its columns are encoded."""

    name: str
    path: str
    negatives: int = Field(default=1, ge=0)
    positives: Literal["one", "all"] = Field(
        default="all", description="one drawn positive per query, or a row for each"
    )
    symmetric: bool = Field(default=False, description="both columns are queries (STS)")
    prompt: str = Field(default="query", description="name of the prompt put before a query")


class _Optimisation(_Strict):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    epochs: float = Field(default=1.0, gt=0)
    batch_size: int = Field(gt=1)
    learning_rate: float = Field(gt=0)
    warmup_ratio: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    temperature: float = Field(gt=0)
    negatives: int | None = Field(
        default=None, ge=0, description="hard negatives per row, instead of the data's"
    )
    seed: int | None = None


class ContrastiveStage(_Optimisation):
    """Independent initialisation: one encoder, symmetric, InfoNCE, optionally over Matryoshka dimensions."""

    stage: Literal["contrastive"]
    side: Literal["query", "document"]
    learnable_temperature: bool = False
    dims: tuple[int, ...] = Field(
        default=(), description="Matryoshka dimensions; empty means the full width alone"
    )


class AlignStage(_Optimisation):
    """Stage I: query encoder towards the frozen document encoder, every text paired with itself."""

    stage: Literal["align"]
    contrastive_weight: float = Field(default=1.0, ge=0)
    mse_weight: float = Field(default=1.0, ge=0)


class JointStage(_Optimisation):
    """Stage II: both encoders on labelled triples; the document side through LoRA if `lora_r` is given."""

    stage: Literal["joint"]
    lora_r: int | None = Field(default=None, gt=0)
    lora_alpha: int = Field(default=64, gt=0)
    lora_dropout: float = Field(default=0.1, ge=0, lt=1)
    false_negative_margin: float | None = Field(default=None, ge=0)


Stage: TypeAlias = Annotated[ContrastiveStage | AlignStage | JointStage, Field(discriminator="stage")]


class Recipe(_Strict):
    """A model: its backbones, the data, the stages in order.

    With both backbones the result is a MAR; with one of them it is a symmetric model of that encoder.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    description: str
    seed: int = 42
    dim: int = Field(gt=0)
    renormalise: bool = True
    precision: Literal["fp32", "bf16"] = "fp32"
    storage_dtype: Literal["float32", "float16", "bfloat16"] | None = None
    prompts: dict[str, str] = Field(default_factory=dict)
    query: Backbone | None = None
    document: Backbone | None = None
    data: tuple[Data, ...] = Field(min_length=1)
    stages: tuple[Stage, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what, names in (("stage", [s.name for s in self.stages]), ("data", [d.name for d in self.data])):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"two {what} entries are called {twice[0]!r}; names must differ")
        self._check_sides()
        self._check_widths()
        missing = sorted({d.prompt for d in self.data if d.prompt} - set(self.prompts))
        if missing:
            raise ValueError(f"data uses the prompt {missing[0]!r}, which 'prompts' does not define")
        kinds = [stage.stage for stage in self.stages]
        order = [ORDER.index(kind) for kind in kinds]
        if order != sorted(order):
            raise ValueError(f"stages come in the order {', '.join(ORDER)}; got {', '.join(kinds)}")
        return self

    @property
    def symmetric(self) -> bool:
        """Whether the recipe trains one encoder for both sides."""
        return self.query is None or self.document is None

    def _check_sides(self) -> None:
        sides = {"query": self.query, "document": self.document}
        present = {side for side, backbone in sides.items() if backbone is not None}
        if not present:
            raise ValueError("give a 'query' backbone, a 'document' backbone, or both")
        for stage in self.stages:
            needed = {stage.side} if isinstance(stage, ContrastiveStage) else {"query", "document"}
            if needed - present:
                raise ValueError(f"stage {stage.name} needs a {sorted(needed - present)[0]!r} backbone")

    def _check_widths(self) -> None:
        widths = {
            side: backbone.config.get("hidden_size")
            for side, backbone in (("query", self.query), ("document", self.document))
            if backbone is not None and backbone.config
        }
        if widths.get("query") not in (None, self.dim):
            raise ValueError(
                f"dim is {self.dim} but the query encoder has hidden_size {widths['query']}; "
                "they must be equal"
            )
        full = widths.get("document")
        if full is not None and full < self.dim:
            raise ValueError(f"dim is {self.dim} but the document encoder has only hidden_size {full}")
        for stage in self.stages:
            if isinstance(stage, ContrastiveStage) and stage.dims:
                limit = widths.get(stage.side)
                if limit is not None and max(stage.dims) > limit:
                    raise ValueError(f"stage {stage.name}: dims {stage.dims} exceed hidden_size {limit}")


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str | Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe by shipped name or file.

    Args:
        name: A name of `recipe_names()` or a path to a YAML file. `extends: NAME` in it takes over another
            recipe; mappings are merged, lists and values replaced, `null` takes a side away.
        overrides: `a.b=value` settings applied on top; list entries by index (`stages.0.epochs=2`), values
            are YAML.

    Raises:
        RecipeError: No such recipe, broken YAML, unknown key or impossible combination.
    """
    path = _find(name)
    content = _read(path, ())
    for override in overrides or []:
        _apply(content, override)
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'recipe'}: {item['msg']}"
            for item in error.errors()
        )
        raise RecipeError(f"{path}: {problems}") from error


def _find(name: str | Path, beside: Path | None = None) -> Path:
    """File of a recipe: a shipped name, or a path (relative to the file that extends it)."""
    path = Path(name)
    if not path.suffix:
        path = RECIPES / f"{name}.yaml"
    elif beside is not None:
        path = beside / path
    if not path.is_file():
        near = get_close_matches(str(name), recipe_names())
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RecipeError(
            f"No recipe {str(name)!r}.{hint} Shipped: {', '.join(recipe_names())}; or give a .yaml file."
        )
    return path


def _read(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Content of a recipe file, laid over the recipe it `extends`: mappings merge, all else replaces."""
    if path.resolve() in chain:
        raise RecipeError(f"{path} extends itself, by way of {', '.join(p.name for p in chain)}.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path} should hold a mapping with 'name', 'stages' and so on.")
    base = content.pop("extends", None)
    if base is None:
        return content
    return _merge(_read(_find(base, path.parent), (*chain, path.resolve())), content)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _apply(content: Any, override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator:
        raise RecipeError(f"--set takes KEY=VALUE, for instance stages.0.epochs=2; got {override!r}.")
    *parents, last = key.split(".")
    try:
        for part in parents:
            content = content[int(part)] if isinstance(content, list) else content[part]
        if isinstance(content, list):
            content[int(last)] = yaml.safe_load(value)
        else:
            content[last] = yaml.safe_load(value)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise RecipeError(f"--set {override}: the recipe has no {key!r} ({error}).") from error
