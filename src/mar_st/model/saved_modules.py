"""Settings of a sentence-transformers model besides the weights of its transformer.

Folders such as `Qwen/Qwen3-Embedding-4B` store their pooling, their normalisation and the prompts they were
trained with. An encoder that starts from one takes over all of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_transformers.util import load_file_path

from mar_st.errors import MarError
from mar_st.files import read_json
from mar_st.model.names import model_source
from mar_st.modules.layout import module_path

#: Modules that may follow the transformer of an encoder.
FOLLOWING_MODULES = ("Pooling", "Dense", "Normalize")


@dataclass(frozen=True)
class SavedModules:
    """The modules of a sentence-transformers model with one encoder.

    Attributes:
        name: Source of the model, for messages.
        transformer: Folder of the transformer below the model's; empty if they are the same.
        dense: Folder of the linear layer after pooling, if there is one.
        pooling: Saved settings of its pooling: `pooling_mode`, `include_prompt`, ...; empty without one.
        prompts: Its non-empty prompts, by name.
    """

    name: str
    transformer: str
    dense: str | None = None
    pooling: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)


def saved_modules(source: str | Path, revision: str | None = None) -> SavedModules | None:
    """Read what a folder or Hub name says about its modules; no weights are touched.

    Returns:
        The modules, or `None` for a model that sentence-transformers did not save.

    Raises:
        MarError: A name of this project has no model on this machine, or the model is not a transformer
            followed by at most a pooling, one linear layer and a normalisation.
    """
    name = model_source(source)

    def read(file: str) -> Any:
        path = load_file_path(name, file, revision=revision)
        try:
            return None if path is None else read_json(Path(path))
        except ValueError as error:
            raise MarError(f"{path} is not readable JSON ({error}); save the model again.") from error

    listing: list[dict[str, Any]] = read("modules.json") or []
    if not listing:
        return None
    kinds = [entry["type"].rpartition(".")[2] for entry in listing]
    other = [kind for kind in kinds[1:] if kind not in FOLLOWING_MODULES]
    if kinds[0] != "Transformer" or other or kinds.count("Dense") > 1:
        raise MarError(
            f"{name} is made of {', '.join(kinds)}; an encoder of a MAR is a Transformer that may be "
            f"followed by {', '.join(FOLLOWING_MODULES)}, each once. Load a model with routes by "
            "MAR.from_pretrained."
        )
    folders = {}
    for kind, entry in zip(kinds, listing, strict=True):
        module_path(Path(name), entry["path"], f"{name}/modules.json")
        folders[kind] = entry["path"]
    prompts = (read("config_sentence_transformers.json") or {}).get("prompts") or {}
    return SavedModules(
        name=name,
        transformer=folders["Transformer"],
        dense=folders.get("Dense"),
        pooling=read(f"{folders['Pooling']}/config.json") or {} if "Pooling" in folders else {},
        prompts={key: text for key, text in prompts.items() if text},
    )
