"""Settings of a sentence-transformers model besides the weights of its transformer.

Folders such as `Qwen/Qwen3-Embedding-4B` store their pooling, their normalisation and the prompts they were
trained with. An encoder that starts from one takes over all of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import read_record
from mar_st.modules.layout import listed_modules

if TYPE_CHECKING:
    from pathlib import Path

#: Modules that may follow the transformer of an encoder.
FOLLOWING_MODULES = ("Pooling", "Dense", "Normalize")


@dataclass(frozen=True)
class SavedModules:
    """The modules of a sentence-transformers model with one encoder.

    Attributes:
        transformer: Folder of the transformer.
        dense: Folder of the linear layer after pooling, if there is one.
        pooling: Saved settings of its pooling: `pooling_mode`, `include_prompt`, ...; empty without one.
        prompts: Its non-empty prompts, by name.
    """

    transformer: Path
    dense: Path | None = None
    pooling: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)


def saved_modules(folder: Path) -> SavedModules | None:
    """Read what a model's folder says about its modules; no weights are touched.

    Returns:
        The modules, or `None` for a model that sentence-transformers did not save.

    Raises:
        MarError: A listing is damaged, or the model is not a transformer followed by at most a pooling, one
            linear layer and a normalisation.
    """
    if not (folder / "modules.json").is_file():
        return None
    modules = listed_modules(folder)
    kinds = [module.type.rpartition(".")[2] for module in modules]
    folders = {kind: module.path for kind, module in zip(kinds, modules, strict=True)}
    if kinds[:1] != ["Transformer"] or not {*kinds[1:]} <= {*FOLLOWING_MODULES} or len(folders) < len(kinds):
        raise MarError(
            f"{folder} is made of {', '.join(kinds)}; an encoder of a MAR is a Transformer that may be "
            f"followed by {', '.join(FOLLOWING_MODULES)}, each once. Load a model with routes by "
            "MAR.from_pretrained."
        )
    prompts = (read_record(folder / "config_sentence_transformers.json") or {}).get("prompts") or {}
    return SavedModules(
        transformer=folders["Transformer"],
        dense=folders.get("Dense"),
        pooling=read_record(folders["Pooling"] / "config.json") or {} if "Pooling" in folders else {},
        prompts={key: text for key, text in prompts.items() if text},
    )


def transformer_folder(folder: Path) -> Path:
    """Return the folder of a model's transformer.

    Raises:
        MarError: See `saved_modules`.
    """
    saved = saved_modules(folder)
    return folder if saved is None else saved.transformer
