"""Checkpoints of `gte` that carry the name `new` and ask for remote code, loaded by the native model."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import one_line, read_record
from mar_st.model.names import model_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Settings that the native model does not have.
_DROPPED = {
    "architectures", "auto_map", "layer_norm_type", "logn_attention_clip1", "logn_attention_scale",
    "pack_qkv", "position_embedding_type", "rope_scaling", "rope_theta", "unpad_inputs",
    "use_memory_efficient_attention",
}  # fmt: skip


@contextmanager
def native(folder: Path) -> Iterator[str]:
    """Provide a folder that needs no remote code: itself, or a temporary folder of links to its files.

    Raises:
        MarError: A `new` checkpoint uses a variant that the native model lacks.
    """
    config = read_record(folder / "config.json") or {}
    if config.get("model_type") != "new":
        yield str(folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        links = Path(scratch) / folder.name
        links.mkdir()
        for file in folder.iterdir():
            if file.is_file() and file.suffix != ".py" and file.name != "config.json":
                (links / file.name).symlink_to(file.resolve())
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

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        folder = Path(snapshot_download(str(source), revision=revision, allow_patterns=patterns))
        if not any(folder.rglob("*.safetensors")):
            snapshot_download(str(source), revision=revision, allow_patterns=["pytorch_model*.bin"])
        return folder
    except Exception as error:  # whatever the Hub client raises, the remedy is the same
        raise MarError(
            f"Cannot download {source} ({type(error).__name__}: {one_line(error, 300)}). Download it where "
            "there is a network and give the folder."
        ) from error


def native_gte_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a `new` checkpoint as transformers' native `gte` names it.

    Raises:
        MarError: The checkpoint uses a variant that the native model does not have.
    """
    forms = {"position_embedding_type": "rope", "layer_norm_type": "layer_norm"}
    other = [f"{name} {config[name]!r}" for name, form in forms.items() if config.get(name, form) != form]
    if other:
        raise MarError(f"This gte checkpoint has {', '.join(other)}; the native model knows only {forms}.")
    scaling = config.get("rope_scaling") or {}
    return {key: value for key, value in config.items() if key not in _DROPPED} | {
        "model_type": "gte",
        "architectures": ["GteModel"],
        "rope_parameters": {
            "rope_theta": config.get("rope_theta", 10_000.0),
            "rope_type": scaling.get("type", "default"),
            **{key: value for key, value in scaling.items() if key != "type"},
        },
    }
