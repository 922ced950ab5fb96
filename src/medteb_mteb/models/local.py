"""Model folders as mteb models: `mteb run -m ./folder`, `mteb.get_model("./folder")` and `medteb run`."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.model.dtypes import use_native_dtype
from medteb_mteb.models.folder import describe_folder, float32_mebibytes, read_object, widths

if TYPE_CHECKING:
    from mteb.models import ModelMeta

__all__ = ["LOCAL", "ModelFolderError", "folder_meta", "folder_name", "model_folder", "resolve_model"]

#: First part of the names of all models from folders, which are never looked up on the Hub or submitted.
LOCAL = "local"

_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_CONFIG_FILES = ("modules.json", "config.json")
#: Heads of plain transformers models that score texts or words instead of embedding them.
_HEADS = {"ForSequenceClassification": "CrossEncoder", "ForTokenClassification": "token classifier"}


class ModelFolderError(MarError):
    """A requested model does not exist, or its folder cannot be used; the message says why."""


def model_folder(name: str) -> Path | None:
    """Return the folder of a model name, or None if it is an ordinary name.

    A name in the form of a path (`./mar`, `../mar`, `~/mar`, `/models/mar`) is always a folder; any other
    name is one if that folder holds a model.

    Raises:
        ModelFolderError: The path names a home folder that does not exist.
    """
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:  # ~name of a user that does not exist
        raise ModelFolderError(
            f"{name} is not a path ({error}). Give the path of a model's folder."
        ) from error
    if folder.is_absolute() or name.startswith((".", "~")):
        return folder
    # os.path: False for a name that is too long for a file.
    return folder if any(os.path.isfile(folder / file) for file in _CONFIG_FILES) else None  # noqa: PTH113


def folder_name(folder: Path) -> str:
    """Return the name of a folder's model, `local/<folder>`; `model` in a run is named after the run."""
    folder = folder.resolve()
    run = folder.name == "model" and bool(folder.parent.name)
    return f"{LOCAL}/{folder.parent.name if run else folder.name}"


def resolve_model(name: str, *, random_weights: int | None = None) -> ModelMeta:
    """Find a model without loading it.

    Args:
        name: A name that mteb knows or can fetch from the Hub, an alias of ours, or a folder.
        random_weights: Seed for a folder that holds a configuration but no weights.

    Raises:
        ModelFolderError: If there is no such model, or the folder is unusable.
    """
    import mteb  # lazy: mteb

    from medteb_mteb.models.metas import ALIASES  # lazy: mteb

    folder = model_folder(name)
    if folder is not None and name not in ALIASES and name not in {m.name for m in mteb.get_model_metas()}:
        if not folder.is_dir():
            raise ModelFolderError(f"model {name}: no such folder")
        return folder_meta(folder, random_weights=random_weights)
    try:
        return mteb.get_model_meta(name)
    except KeyError as error:
        # mteb asks the Hub for what it does not know; a name without an organisation cannot be there.
        if "/" not in name or os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            raise ModelFolderError(f"model {name}: {error.args[0]}") from None
    try:
        return mteb.get_model_meta(name, fetch_from_hf=True)
    except Exception as error:  # the Hub client raises a dozen types
        first = (str(error).strip().splitlines() or [""])[0][:200]
        raise ModelFolderError(
            f"model {name}: not known to mteb, not a folder, and not found on the Hub ({first})"
        ) from None


def folder_meta(folder: Path, *, random_weights: int | None = None) -> ModelMeta:
    """Return a folder's model metadata: named by `folder_name`, with a digest of its files as revision.

    Raises:
        ModelFolderError: If there is no folder, or it holds no model, no weights, or only pickled ones.
    """
    from medteb_mteb.models.metas import LocalModelMeta  # lazy: mteb

    if not folder.is_dir():
        raise ModelFolderError(f"model {folder}: no such folder")
    folder = folder.resolve()
    has_weights = _check(folder)
    name = folder_name(folder)
    if not has_weights and not (folder / "modules.json").is_file():
        if random_weights is None:
            raise ModelFolderError(
                f"model {folder}: a configuration without weights. Evaluate it with random ones by "
                "`medteb run --random-weights SEED`"
            )
        name += f"-random-{random_weights}"
    known = describe_folder(folder)
    content = {
        "loader": functools.partial(_load, folder=folder, seed=random_weights if not has_weights else None),
        "name": name,
        "memory_usage_mb": float32_mebibytes(known["n_parameters"]) if known["n_parameters"] else None,
        "open_weights": None,
        "public_training_data": None,
        "framework": ["Sentence Transformers", "PyTorch"],
        "use_instructions": None,
        "training_datasets": None,
        "model_type": ["router"] if _is_router(folder) else ["dense"],
        **known,
        "embed_dim": widths(known["embed_dim"]) if known["embed_dim"] else None,
    }
    return LocalModelMeta.model_validate(content)


def _check(folder: Path) -> bool:
    """Check that a folder can be used, and return True if it holds weights.

    Raises:
        ModelFolderError: If the folder is unusable.
    """
    if not any((folder / file).is_file() for file in _CONFIG_FILES):
        raise ModelFolderError(
            f"model {folder}: holds neither modules.json (sentence-transformers) nor config.json"
        )
    has_weights = any(folder.rglob("*.safetensors"))
    if not has_weights and any(path.suffix in _PICKLE_SUFFIXES for path in folder.rglob("*")):
        raise ModelFolderError(
            f"model {folder}: holds only pickled weights, which can run code; convert them to safetensors"
        )
    kind = read_object(folder / "config_sentence_transformers.json").get("model_type") or _head(folder)
    if kind not in (None, "SentenceTransformer"):
        raise ModelFolderError(f"model {folder}: is a {kind}; expected a SentenceTransformer")
    return has_weights


def _head(folder: Path) -> str | None:
    """Return the kind of a plain transformers folder whose model has a head; None for an encoder."""
    if (folder / "modules.json").is_file():
        return None
    architectures = read_object(folder / "config.json").get("architectures")
    names = architectures if isinstance(architectures, list) else []
    # The configuration of an encoder may list a head beside it.
    kinds = [
        next((kind for head, kind in _HEADS.items() if str(name).endswith(head)), None) for name in names
    ]
    return kinds[0] if kinds and None not in kinds else None


def _load(
    name: str,
    revision: str | None = None,
    *,
    folder: Path,
    seed: int | None,
    device: str | None = None,
    embed_dim: int | None = None,
    **kwargs: Any,
) -> Any:
    """Load a model folder: a Router with query and document routes as MAR, any other unchanged.

    Half precision becomes float32 on a CPU that has no instructions for it; see `use_native_dtype`.
    """
    del name, revision
    from sentence_transformers import SentenceTransformer  # lazy: sentence_transformers

    from mar_st.model.opening import PlainModel  # lazy: sentence_transformers
    from medteb_mteb.models.encoders import FolderEncoder, MAREncoder  # lazy: mteb

    kwargs["truncate_dim"] = embed_dim
    if _is_router(folder):
        from mar_st import MAR  # lazy: torch

        of_encoder = {key: kwargs.pop(key) for key in ("sts_route",) if key in kwargs}
        mar = MAR.from_pretrained(folder, device=device, **kwargs)
        use_native_dtype(mar, kwargs.get("model_kwargs"))
        return MAREncoder(mar, **of_encoder)
    if seed is not None and not any(folder.rglob("*.safetensors")):
        with tempfile.TemporaryDirectory() as scratch:
            _save_random(folder, Path(scratch), seed)
            model = SentenceTransformer(scratch, device=device, **kwargs)
    else:
        model = PlainModel(str(folder), device=device, local_files_only=True, **kwargs)
    use_native_dtype(model, kwargs.get("model_kwargs"))
    return FolderEncoder(model)


def _save_random(folder: Path, target: Path, seed: int) -> None:
    """Write the model that a configuration describes, with random weights, and its tokenizer."""
    import torch  # lazy: torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer  # lazy: transformers

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
        {"query", "document"} <= set(read_object(path).get("structure", {}))
        for path in folder.rglob("router_config.json")
    )
