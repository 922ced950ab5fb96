"""Weights and configuration of an encoder for a cut vocabulary."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils import logging

from mar_st.files import listed_path
from mar_st.model.native_gte import native_gte_config
from mar_st.planning.backbones import Shape
from mar_st.vocabulary.errors import VocabularyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WEIGHTS_FILE, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"

#: Files with the numbers of tokens.
CONFIG_FILES = ("config.json", "generation_config.json")

_ID_KEYS = re.compile(r".*_token_(id|ids|index)$")


@dataclass(frozen=True)
class VocabularyTensors:
    """Tensors of an architecture that have one row per token of the vocabulary.

    Attributes:
        names: Names of parameters whose first dimension is the size of the vocabulary.
        others: Names of all other parameters, with `#` for numbers of layers.
        offset: Number of the padding token if positions are counted from it (RoBERTa); else `None`.
    """

    names: frozenset[str]
    others: frozenset[str]
    offset: int | None

    def holds(self, name: str) -> bool:
        """Return True if a tensor of a file has a row per piece."""
        return _is_among(name, self.names)

    def knows(self, name: str) -> bool:
        """Return True if a tensor of a file is a parameter of another shape."""
        return _is_among(re.sub(r"\d+", "#", name), self.others)


def _is_among(name: str, known: frozenset[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[start:]) in known for start in range(len(parts)))


def read_config(folder: Path) -> dict[str, Any]:
    """Return the effective configuration of an encoder, with the defaults of its class.

    Raises:
        VocabularyError: The configuration is missing, broken or not of a transformers model.
    """
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if content.get("model_type") == "new":
            content = native_gte_config(content)
        config: dict[str, Any] = AutoConfig.for_model(**content).to_dict()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VocabularyError(
            f"{folder} has no readable config.json of a transformers model ({type(error).__name__}: {error})."
        ) from error
    return config


def vocabulary_tensors(config: Mapping[str, Any]) -> VocabularyTensors:
    """Find the tensors that have a row per piece: those whose shape follows `vocab_size`.

    The encoder is built twice on the meta device with one layer, with each head that transformers has for it.

    Raises:
        VocabularyError: No tensor has a row per piece.
    """
    size = int(config.get("vocab_size") or 0)
    shape = Shape("encoder", {key: value for key, value in config.items() if key != "architectures"})
    names: set[str] = set()
    others: set[str] = set()
    offset = None
    for loader in (AutoModel, AutoModelForMaskedLM, AutoModelForCausalLM):
        try:
            small, large = (_meta(shape.with_layers(1), loader, size + more) for more in (0, 8))
        except ValueError as error:
            if loader is AutoModel:
                raise VocabularyError(f"The configuration builds no encoder: {error}") from error
            continue  # the architecture has no such head
        shapes = {name: tensor.shape for name, tensor in large.state_dict().items()}
        for name, tensor in small.state_dict().items():
            if tensor.shape != shapes[name]:
                names.add(name)
            else:
                others.add(re.sub(r"\d+", "#", name))
        for name, module in small.named_modules():
            if isinstance(module, nn.Embedding) and "position" in name and module.padding_idx is not None:
                offset = module.padding_idx
    if not names:
        raise VocabularyError(f"{config.get('model_type')} has no embedding of so many rows as vocab_size.")
    return VocabularyTensors(frozenset(names), frozenset(others), offset)


def _meta(shape: Shape, loader: Any, size: int) -> Any:

    level = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call] # BERT asks whether it is to be a decoder
    try:
        config = AutoConfig.for_model(**{**shape.config, "vocab_size": size})
        with torch.device("meta"):
            return loader.from_config(config)
    finally:
        logging.set_verbosity(level)


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of an encoder.

    Raises:
        VocabularyError: There are no weight files, or there is an adapter beside them.
    """
    if (folder / "adapter_config.json").is_file():
        raise VocabularyError(
            f"{folder} holds a LoRA adapter; merge it first (peft: merge_and_unload) and save the whole "
            "encoder."
        )
    if (folder / WEIGHTS_INDEX).is_file():
        listing = json.loads((folder / WEIGHTS_INDEX).read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(listing.values()))
        return [listed_path(folder, name, folder / WEIGHTS_INDEX, VocabularyError) for name in names]
    if not (folder / WEIGHTS_FILE).is_file():
        raise VocabularyError(
            f"{folder} holds no {WEIGHTS_FILE}; save the model with transformers (safetensors) first."
        )
    return [folder / WEIGHTS_FILE]


def rows_of(files: Sequence[Path], tensors: VocabularyTensors) -> int:
    """Return the number of rows that the embedding has, from the headers of the files.

    Raises:
        VocabularyError: A file is broken, the tensors with a row per piece differ in length, or another
            tensor of this length is not known to the architecture.
    """
    lengths: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for path in files:
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118 -- not a dict
                shape = file.get_slice(name).get_shape()
                if tensors.holds(name):
                    lengths[name] = shape[0]
                elif shape and not tensors.knows(name):
                    unknown[name] = shape[0]
    if len(set(lengths.values())) != 1:
        raise VocabularyError(
            f"{files[0].parent} holds no embedding of its architecture, or embeddings of several lengths "
            f"({lengths}); save the model again."
        )
    rows = next(iter(lengths.values()))
    strange = [name for name, length in unknown.items() if length == rows]
    if strange:
        raise VocabularyError(
            f"{files[0].parent} holds {strange[0]}, which is as long as the vocabulary and no parameter "
            "of its architecture; save the model with transformers first."
        )
    return rows


def write_weights(
    files: Sequence[Path], out: Path, tensors: VocabularyTensors, order: Sequence[int]
) -> tuple[int, int]:
    """Write the weights with the rows of the pieces that stay, file by file.

    Args:
        files: The files before.
        out: Folder to write into.
        tensors: Which tensors have a row per piece.
        order: Old number of each new row.

    Returns:
        Number of parameters before and after.
    """
    rows = torch.from_numpy(np.asarray(order, dtype=np.int64))
    before = after = size = 0
    for path in files:
        with _opened(path) as file:
            content, metadata = {}, file.metadata()
            for name in file.keys():  # noqa: SIM118 -- not a dict
                tensor = file.get_tensor(name)
                before += tensor.numel()
                content[name] = tensor.index_select(0, rows) if tensors.holds(name) else tensor
                after += content[name].numel()
                size += content[name].numel() * content[name].element_size()
            save_file(content, str(out / path.name), metadata=metadata or {"format": "pt"})
    index = files[0].parent / WEIGHTS_INDEX
    if index.is_file():
        listing = json.loads(index.read_text(encoding="utf-8"))
        listing["metadata"] = {**listing.get("metadata", {}), "total_size": size}
        if "total_parameters" in listing["metadata"]:
            listing["metadata"]["total_parameters"] = after
        (out / WEIGHTS_INDEX).write_text(json.dumps(listing, indent=2), encoding="utf-8")
    return before, after


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except Exception as error:  # safetensors has an error class of its own, the system others
        raise VocabularyError(f"{path} cannot be read ({error}). Copy or download it again.") from error


def config_numbers(config: Mapping[str, Any]) -> set[int]:
    """Return the numbers of tokens that a configuration names."""
    numbers: set[int] = set()
    for key, value in config.items():
        if _ID_KEYS.fullmatch(key):
            numbers.update(number for number in _numbers(value) if number >= 0)
    return numbers


def write_configs(folder: Path, out: Path, config: Mapping[str, Any], new: np.ndarray, rows: int) -> None:
    """Write the configurations with the new numbers of tokens.

    Args:
        folder: Folder of the old configurations.
        out: Folder to write into.
        config: The effective configuration; numbers that its class sets by default are written too.
        new: New number of each old piece; -1 for removed pieces.
        rows: Rows of the embedding.
    """
    for name in CONFIG_FILES:
        if not (folder / name).is_file():
            continue
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        effective = config if name == "config.json" else content
        for key, value in effective.items():
            if _ID_KEYS.fullmatch(key) and (key in content or value is not None):
                content[key] = _renumbered(value, new)
        if name == "config.json":
            content["vocab_size"] = rows
        (out / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def _numbers(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else [n for n in value if isinstance(n, int)] if value else []


def _renumbered(value: Any, new: np.ndarray) -> Any:
    if isinstance(value, list):
        return [_renumbered(number, new) for number in value]
    if not isinstance(value, int) or value < 0:
        return value
    number = int(new[value]) if value < len(new) else -1
    return number if number >= 0 else None  # a default of the class that the model never had
