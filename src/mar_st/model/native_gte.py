"""Checkpoints of `gte` that carry the name `new` and ask for remote code, loaded by the native model."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.model.names import model_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def native(source: str, revision: str | None = None) -> Iterator[str]:
    """Provide a source that needs no remote code: itself, or a temporary folder of links to its files.

    Args:
        source: Folder, or Hub name.
        revision: Branch, tag or commit of a Hub name.

    Raises:
        MarError: A `new` checkpoint cannot be downloaded, or uses a variant that the native model lacks.
    """
    config = _config(source, revision)
    if config.get("model_type") != "new":
        yield source
        return
    folder = fetch(source, revision)
    with tempfile.TemporaryDirectory() as scratch:
        links = Path(scratch) / folder.name
        links.mkdir()
        for file in folder.iterdir():
            if file.is_file() and file.suffix != ".py" and file.name != "config.json":
                _link_or_copy(file, links / file.name)
        (links / "config.json").write_text(json.dumps(native_gte_config(config)), encoding="utf-8")
        yield str(links)


def fetch(source: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a model: a given folder, that of a name such as `mar-mini`, or a Hub download.

    Raises:
        MarError: The folder does not exist, or it cannot be downloaded.
    """
    if (folder := model_folder(source)) is not None:
        return folder
    from huggingface_hub import snapshot_download  # lazy: huggingface_hub

    try:
        return Path(
            snapshot_download(
                str(source), revision=revision, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"]
            )
        )
    except Exception as error:  # whatever the Hub client raises, the remedy is the same
        raise MarError(
            f"Cannot download {source} ({type(error).__name__}: {error}). Download it where there is a "
            "network and give the folder."
        ) from error


def _config(source: str, revision: str | None) -> dict[str, Any]:
    """Return `config.json` of a source; empty if it is missing, which its loader then reports."""
    from transformers.utils.hub import cached_file  # lazy: transformers

    try:
        path = cached_file(source, "config.json", revision=revision)
        config: dict[str, Any] = json.loads(Path(str(path)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config


def native_gte_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a `new` checkpoint as transformers' native `gte` names it.

    Raises:
        MarError: The checkpoint uses a variant that the native model does not have.
    """
    if (
        config.get("position_embedding_type", "rope") != "rope"
        or config.get("layer_norm_type", "layer_norm") != "layer_norm"
    ):
        raise MarError(
            "This checkpoint is not of the gte form with rotary positions and layer norm "
            f"(position_embedding_type {config.get('position_embedding_type')!r}, "
            f"layer_norm_type {config.get('layer_norm_type')!r})."
        )
    drop = {
        "architectures",
        "auto_map",
        "layer_norm_type",
        "logn_attention_clip1",
        "logn_attention_scale",
        "pack_qkv",
        "position_embedding_type",
        "rope_scaling",
        "rope_theta",
        "unpad_inputs",
        "use_memory_efficient_attention",
    }
    native = {key: value for key, value in config.items() if key not in drop}
    scaling = config.get("rope_scaling") or {}
    native["model_type"] = "gte"
    native["architectures"] = ["GteModel"]
    native["rope_parameters"] = {
        "rope_theta": config.get("rope_theta", 10_000.0),
        "rope_type": scaling.get("type", "default"),
        **{key: value for key, value in scaling.items() if key != "type"},
    }
    return native


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:
        shutil.copy2(source, target)
