"""Settings of a sentence-transformers model besides the weights of its transformer.

Folders such as `Qwen/Qwen3-Embedding-4B` store their pooling, their normalisation and the prompts they were
trained with. An encoder that starts from one takes over all of these.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import load_file_path

from mar_st.errors import MarError
from mar_st.model.names import model_source
from mar_st.modules.layout import module_path

if TYPE_CHECKING:
    from mar_st.recipes.schema import Recipe

CONFIG = "config_sentence_transformers.json"

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
    listing: list[dict[str, Any]] = _read(name, "modules.json", revision) or []
    if not listing:
        return None
    kinds = [entry["type"].rpartition(".")[2] for entry in listing]
    if kinds[0] != "Transformer":
        raise MarError(
            f"{name} starts with the module {kinds[0]}; an encoder needs a Transformer there. Load an "
            "asymmetric model as a whole with MAR.from_pretrained."
        )
    other = [kind for kind in kinds[1:] if kind not in FOLLOWING_MODULES]
    if other:
        raise MarError(
            f"{name} has the module {other[0]}, which an encoder of a MAR cannot take over; after its "
            f"transformer there may be {', '.join(FOLLOWING_MODULES)}."
        )
    folders = {kind: [e["path"] for e, k in zip(listing, kinds, strict=True) if k == kind] for kind in kinds}
    for entry in listing:
        module_path(Path(name), entry["path"], f"{name}/modules.json")
    if len(folders.get("Dense", [])) > 1:
        raise MarError(
            f"{name} has {len(folders['Dense'])} linear layers after pooling; an encoder takes one at most."
        )
    config = _read(name, CONFIG, revision) or {}
    return SavedModules(
        name=name,
        transformer=listing[0]["path"],
        dense=next(iter(folders.get("Dense", [])), None),
        pooling={} if "Pooling" not in folders else _pooling(name, folders["Pooling"][0], revision),
        prompts={key: text for key, text in (config.get("prompts") or {}).items() if text},
    )


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
    saved_prompts: list[dict[str, str]] = []
    for backbone in (recipe.query, recipe.document):
        if backbone is not None and backbone.source is not None:
            saved = saved_modules(backbone.source, backbone.revision)
            saved_prompts.append(saved.prompts if saved is not None else {})
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


def _read(name: str, file: str, revision: str | None) -> Any:
    path = load_file_path(name, file, revision=revision)
    if path is None:
        return None
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise MarError(f"{path} is not readable JSON ({error}); save the model again.") from error


def _pooling(name: str, folder: str, revision: str | None) -> dict[str, Any]:
    config: dict[str, Any] = Pooling.load_config(name, subfolder=folder, revision=revision)
    return config
