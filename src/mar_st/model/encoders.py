"""The two encoders of a MAR as lists of sentence-transformers modules, and the checks they must pass.

A source is a folder or Hub name of a transformers or sentence-transformers model, or a `(config, tokenizer)`
pair for an encoder with random weights.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from safetensors.torch import save_file
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn
from transformers import AutoModel, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.model.adapters import merge_lora
from mar_st.model.loading import check_files, check_weights, loading_of
from mar_st.model.names import model_folder
from mar_st.model.native_gte import fetch, native
from mar_st.model.tokenizers import append_eos, check_tokenizer
from mar_st.modules.layout import SavedModules, saved_modules

if TYPE_CHECKING:
    from sentence_transformers.base.modules.module import Module
    from transformers import PreTrainedModel

    from mar_st.recipes.schema import Recipe


Task: TypeAlias = Literal["retrieval", "rerank", "sts"]

#: Name of the stored prompt for the query side of each task. The names are the ones mteb looks up:
#: prompt type, task type and prompt type, task type.
PROMPT_NAMES: dict[Task, str] = {"retrieval": "query", "rerank": "Reranking-query", "sts": "STS"}

#: The instructions of the MAR paper (Table 8) in the format of its released code.
PUBLISHED_PROMPTS = {
    name: f"<instruct>{instruction}\n<query>"
    for name, instruction in {
        "query": "Given a Chinese medical question, retrieve medical documents that answer the question.",
        "Reranking-query": (
            "Based on a Chinese medical question, evaluate and rank the medical information that provide "
            "answers to the question."
        ),
        "STS": "Retrieve semantically similar text.",
    }.items()
}


def source_prompts(query: EncoderSource, document: EncoderSource) -> dict[str, str] | None:
    """Return the prompts that two encoders were saved with; `None` if neither has one."""
    of_document, of_query = _prompts(document), _prompts(query)
    # Prompts of tasks are for queries: those of the query encoder, if it has any.
    task_prompts = {name: text for name, text in (of_query or of_document).items() if name != "document"}
    if not task_prompts and "document" not in of_document:
        return None
    return {**(task_prompts or PUBLISHED_PROMPTS), "document": of_document.get("document", "")}


def _prompts(source: EncoderSource, revision: str | None = None) -> dict[str, str]:
    saved = None if isinstance(source, tuple) else saved_modules(fetch(source, revision))
    return saved.prompts if saved is not None else {}


def with_source_prompts(recipe: Recipe) -> Recipe:
    """Return the recipe with the prompts that it uses but does not define, taken from its sources.

    A prompt for queries comes from the query encoder's source if that has one of this name, else from the
    document encoder's, to whose space queries are aligned. The prompt `document` comes from the document
    encoder's source, or that of the only encoder.

    Raises:
        MarError: A data entry names a prompt that neither the recipe nor a source defines.
    """
    used = {entry.prompt for entry in recipe.data if entry.prompt and entry.form != "texts"}
    missing = sorted({*used, "document"} - set(recipe.prompts))
    if not missing:
        return recipe
    saved_prompts = [
        _prompts(backbone.source, backbone.revision)
        for backbone in (recipe.query, recipe.document)
        if backbone is not None and backbone.source is not None
    ]
    prompts = dict(recipe.prompts)
    for name in missing:
        order = reversed(saved_prompts) if name == "document" else saved_prompts
        text = next((own[name] for own in order if name in own), None)
        if text is not None:
            prompts[name] = text
        elif name in used:
            raise MarError(
                f"data of {recipe.name} use the prompt {name!r}, which neither 'prompts' nor a source "
                "defines. Define it, or write prompt: '' in the data entry."
            )
    return recipe.model_copy(update={"prompts": prompts})


Role: TypeAlias = Literal["query", "document"]
PoolingMode: TypeAlias = Literal["cls", "lasttoken", "mean"]
_Random: TypeAlias = tuple[PretrainedConfig, PreTrainedTokenizerBase]
EncoderSource: TypeAlias = str | Path | _Random

#: Files of weights that transformers loads.
_WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")

#: Tokens per text on both sides, as in the published models.
DEFAULT_MAX_LENGTH = 512

#: Pooling of each side, unless the recipe sets another.
DEFAULT_POOLING: dict[Role, PoolingMode] = {"query": "cls", "document": "lasttoken"}


def load_encoder(
    source: EncoderSource,
    role: Role,
    *,
    max_length: int | None = None,
    model_kwargs: dict[str, Any] | None = None,
    revision: str | None = None,
    pooling: PoolingMode | None = None,
    projection: int | None = None,
) -> list[Module]:
    """Load one side of a MAR as `[Transformer, Pooling]`, or `[Transformer, Pooling, Dense]`.

    A LoRA adapter that the folder holds is merged into the weights.

    The query encoder is pooled at its first token (CLS), the document encoder at its last (EOS; MAR, section
    on encoders), unless `pooling` is given. For `lasttoken` EOS is appended if the tokenizer does not do so
    itself. Padding may be on either side: pooling follows the attention mask, and rotary positions
    are relative.

    Args:
        source: Folder, Hub name, or `(config, tokenizer)` for random weights. `gte` checkpoints of the name
            `new` are loaded by transformers' own `gte`, without remote code.
        role: Which side this encoder is.
        max_length: Maximum number of tokens per text, special tokens included; default 512. A lower limit of
            the model, or of its sentence-transformers settings, takes precedence.
        model_kwargs: Passed to the transformers loader (`dtype`, `attn_implementation`, ...).
        revision: Branch, tag or commit of a Hub name.
        pooling: `cls`, `lasttoken` or `mean`; default that of the model, else that of the role.
        projection: Width of a linear layer after pooling (with bias, without activation, so that the encoder
            reaches any affine image of its vectors). It is taken from a sentence-transformers folder that
            holds one of this width; otherwise it is new, with weights from torch's random numbers.

    Returns:
        Modules; the last outputs `(batch, width)` float vectors.

    Raises:
        MarError: The tokenizer lacks the token that this side is pooled at, or does not fit the embeddings,
            the weights are damaged, or the folder ends in a linear layer of another width than `projection`.
    """
    place = source if isinstance(source, tuple) else fetch(source, revision)
    with loading_of(place):
        saved = None if isinstance(place, tuple) else saved_modules(place)
        dense = None
        if saved is not None and saved.dense is not None:
            dense = Dense.load(str(saved.dense))
        transformer = _transformer(place if saved is None else saved.transformer, dict(model_kwargs or {}))
        check_weights(transformer, source)
    merge_lora(transformer)
    name = str(source) if isinstance(source, str | Path) else type(source[0]).__name__
    own = saved.pooling if saved is not None else {}
    mode = _mode(pooling, saved, role, name)
    _prepare_tokenizer(transformer, role, mode, name)
    limit = transformer.max_seq_length or DEFAULT_MAX_LENGTH
    transformer.max_seq_length = min(limit, max_length or DEFAULT_MAX_LENGTH)
    width: int = transformer.get_embedding_dimension()
    modules: list[Module] = [
        transformer,
        Pooling(width, mode, include_prompt=own.get("include_prompt", True)),
    ]
    if dense is not None:
        if projection != dense.out_features:
            raise MarError(
                f"{name} ends in a linear layer of width {dense.out_features}, but the projection asked for "
                f"is {projection or 'none'}. Set projection: {dense.out_features}, or give an encoder "
                "without one."
            )
        modules.append(dense)
    elif projection is not None:
        modules.append(linear_projection(width, projection))
    return modules


def _transformer(source: Path | _Random, model_kwargs: dict[str, Any]) -> Transformer:
    transformer: Transformer
    if isinstance(source, Path):
        with native(source) as loadable:
            transformer = Transformer.load(loadable, model_kwargs=model_kwargs)
        return transformer
    with tempfile.TemporaryDirectory() as folder:
        random: PreTrainedModel = AutoModel.from_config(source[0])  # type: ignore[no-untyped-call]
        write_encoder(random, source[1], Path(folder))
        del random  # two copies of a large model do not fit in memory
        transformer = Transformer(folder, model_kwargs=model_kwargs)
    return transformer


def linear_projection(in_features: int, out_features: int) -> Dense:
    """Return a linear layer with random weights, `(batch, in_features)` to `(batch, out_features)`."""
    return Dense(in_features, out_features, bias=True, activation_function=nn.Identity())


def check_source(name: str, revision: str | None = None, *, what: str) -> None:
    """Check that a folder or Hub name holds a model with whole weights, without loading them.

    Args:
        name: Folder or Hub name.
        revision: Branch, tag or commit of a Hub name.
        what: Purpose of the model, for the message.

    Raises:
        MarError: The name is neither a folder with a model and its weights nor known to the Hub (or its local
            cache).
    """
    try:
        folder = model_folder(name)
        if folder is None:
            cached_file(name, "config.json", revision=revision)
            return
    except (OSError, ValueError) as error:
        raise MarError(
            f"{what}: {name} is neither a folder with a model nor a repository of the Hub that can be "
            f"loaded ({one_line(error, 200)}). Give the folder of a model, or download it first."
        ) from error
    files = [file for pattern in _WEIGHT_FILES for file in folder.rglob(pattern)]
    if not files or not any((folder / listing).is_file() for listing in ("config.json", "modules.json")):
        raise MarError(
            f"{what}: the folder {name} holds no model: expected config.json or modules.json, and weights "
            f"({', '.join(_WEIGHT_FILES)}). Copy or download the model again."
        )
    check_files(folder)


def write_encoder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write an encoder from which `load_encoder` loads.

    Unlike `save_pretrained` it writes in every process of a distributed launch, each into its own folder.

    Args:
        model: The encoder.
        tokenizer: Its tokenizer.
        folder: An existing folder.
    """
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)


def _mode(pooling: PoolingMode | None, saved: SavedModules | None, role: Role, name: str) -> PoolingMode:
    """Return the pooling mode that is given, or else that of the model, or else that of the role."""
    mode = pooling or (saved.pooling if saved is not None else {}).get("pooling_mode", DEFAULT_POOLING[role])
    if mode not in get_args(PoolingMode):
        raise MarError(
            f"{name} pools by {mode!r}; an encoder takes {', '.join(get_args(PoolingMode))}. Name one with "
            "'pooling' to train it so, or give another model."
        )
    return mode


def _prepare_tokenizer(transformer: Transformer, role: Role, mode: PoolingMode, name: str) -> None:
    """Check vocabulary sizes and the pooled token; append EOS and set a padding token if needed."""
    tokenizer = transformer.tokenizer
    if tokenizer is None:
        raise MarError(f"{name} has no tokenizer; save one beside the weights.")
    check_tokenizer(tokenizer, name)
    embedding: Any = transformer.model.get_input_embeddings()
    rows = embedding.weight.shape[0]
    if len(tokenizer) > rows:
        raise MarError(
            f"The tokenizer of {name} has {len(tokenizer)} tokens but its embedding has {rows} rows; "
            "they come from different models. Use the tokenizer the weights were trained with."
        )
    pooled = _pooled(tokenizer, role, mode, name)
    if pooled is not tokenizer:
        transformer.processor = pooled
        check_tokenizer(pooled, name)  # which gives it a padding token, too


def _pooled(tokenizer: Any, role: Role, mode: PoolingMode, name: str) -> Any:
    """Return a tokenizer that makes the token at which an encoder is pooled.

    Raises:
        MarError: The tokenizer has no such token, or it cannot be appended.
    """
    if mode == "cls":
        first = tokenizer("a")["input_ids"][0]
        if first not in {tokenizer.cls_token_id, tokenizer.bos_token_id} - {None}:
            raise MarError(
                f"The {role} encoder is pooled at its first token, but the tokenizer of {name} does not "
                "start a text with a CLS (or BOS) token. Give an encoder of the BERT family, or another "
                "pooling."
            )
    elif mode == "lasttoken":
        if tokenizer.eos_token_id is None:
            raise MarError(
                f"The {role} encoder is pooled at its EOS token, but the tokenizer of {name} defines none. "
                "Set tokenizer.eos_token, or give another pooling."
            )
        last = tokenizer("a")["input_ids"][-1]  # EOS, or another special token (Qwen3-Embedding)
        if last not in tokenizer.all_special_ids:
            return append_eos(tokenizer)
    return tokenizer
