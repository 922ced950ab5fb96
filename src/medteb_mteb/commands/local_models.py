"""Model names of `medteb run`: anything mteb knows or can fetch, our aliases, or a local folder."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.commands.errors import UserError
from medteb_mteb.editions import data_files, sha256_of

if TYPE_CHECKING:
    from mteb.models import ModelMeta

__all__ = ["folder_meta", "resolve_model"]

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def resolve_model(name: str, *, random_weights: int | None = None) -> ModelMeta:
    """Finds a model without loading it.

    Args:
        name: A local folder, or a name that mteb knows or can fetch from the Hub.
        random_weights: Seed for a folder that holds a configuration but no weights.

    Raises:
        UserError: If there is no such model, or a folder cannot be used.
    """
    import mteb

    folder = Path(name).expanduser()
    explicit = folder.is_absolute() or name.startswith((".", "~"))
    if explicit or (folder.is_dir() and not _is_known(name)):
        if not folder.is_dir():
            raise UserError(f"model {name}: no such folder")
        return folder_meta(folder, random_weights=random_weights)
    try:
        return mteb.get_model_meta(name)
    except KeyError as error:
        # mteb asks the Hub for what it does not know; a name without an organisation cannot be there.
        if "/" not in name or os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            raise UserError(f"model {name}: {error.args[0]}") from None
    try:
        return mteb.get_model_meta(name, fetch_from_hf=True)
    except Exception as error:  # the Hub client raises a dozen types
        first = (str(error).strip().splitlines() or [""])[0][:200]
        raise UserError(
            f"model {name}: unknown to mteb, no local folder, and not to be had from the Hub ({first})"
        ) from None


def _is_known(name: str) -> bool:
    import mteb

    try:
        mteb.get_model_meta(name)
    except KeyError:
        return False
    return True


def folder_meta(folder: Path, *, random_weights: int | None = None) -> ModelMeta:
    """Metadata of a local folder: named ``local/<folder>``, its revision a digest of all its files.

    The ``model`` folder of a training run (``runs/NAME/model``) is named after the run.

    Raises:
        UserError: If the folder holds no model, no weights, or only pickled ones.
    """
    from medteb_mteb.models import LocalModelMeta

    folder = folder.resolve()
    has_weights = any(folder.rglob("*.safetensors"))
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise UserError(f"model {folder}: holds neither modules.json (sentence-transformers) nor config.json")
    if not has_weights and any(path.suffix in _PICKLES for path in folder.rglob("*")):
        raise UserError(
            f"model {folder}: holds only pickled weights, which can run code; convert them to safetensors"
        )
    if (kind := _json(folder / "config_sentence_transformers.json").get("model_type")) not in (
        None,
        "SentenceTransformer",
    ):
        raise UserError(f"model {folder}: is a {kind}; expected a SentenceTransformer")
    run = folder.name == "model" and bool(folder.parent.name)
    name = f"local/{folder.parent.name if run else folder.name}"
    revision = _digest(folder)
    if not has_weights and not (folder / "modules.json").is_file():
        if random_weights is None:
            raise UserError(
                f"model {folder}: a configuration without weights. Pass --random-weights SEED to evaluate it "
                "with random ones"
            )
        name += f"-random-{random_weights}"
    return LocalModelMeta(
        loader=functools.partial(_load, folder=folder, seed=random_weights if not has_weights else None),
        name=name,
        revision=revision,
        release_date=None,
        languages=None,
        n_parameters=None,
        memory_usage_mb=None,
        max_tokens=None,
        embed_dim=None,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=["Sentence Transformers", "PyTorch"],
        similarity_fn_name=None,
        use_instructions=None,
        training_datasets=None,
        model_type=["router"] if _is_router(folder) else ["dense"],
    )


def _load(
    name: str,
    revision: str | None = None,
    *,
    folder: Path,
    seed: int | None,
    device: str | None = None,
    **kwargs: Any,
) -> Any:
    """Loads a local folder: a Router with query and document routes as MAR, anything else as it is."""
    del name, revision
    from mteb.models import SentenceTransformerEncoderWrapper
    from sentence_transformers import SentenceTransformer

    if _is_router(folder):
        from mar_st import MAR
        from medteb_mteb.models import MAREncoder

        return MAREncoder(MAR.from_pretrained(folder, device=device, **kwargs))
    if seed is not None and not any(folder.rglob("*.safetensors")):
        with tempfile.TemporaryDirectory() as scratch:
            _save_random(folder, Path(scratch), seed)
            model = SentenceTransformer(scratch, device=device, **kwargs)
    else:
        model = SentenceTransformer(str(folder), device=device, local_files_only=True, **kwargs)
    return SentenceTransformerEncoderWrapper(model)


def _save_random(folder: Path, target: Path, seed: int) -> None:
    """Writes the model that a configuration describes, with random weights, and its tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        auto: Any = AutoModel
        model = auto.from_config(config)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _is_router(folder: Path) -> bool:
    return any(
        {"query", "document"} <= set(_json(path).get("structure", {}))
        for path in folder.rglob("router_config.json")
    )


def _digest(folder: Path) -> str:
    """First 40 hex digits of a sha256 over the names and contents of the folder's files (cards left out)."""
    digest = hashlib.sha256()
    for relative, path in data_files(folder):
        digest.update(f"{relative}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()[:40]


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
