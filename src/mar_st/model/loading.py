"""Loading some routes of a saved MAR; files of the other routes are not opened."""

from __future__ import annotations

import json
import pickle
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers import __version__ as version
from sentence_transformers.base.modules import Router
from sentence_transformers.util import import_module_class, load_file_path
from torch import nn
from transformers import PreTrainedModel
from transformers import __version__ as transformers_version
from transformers.utils.peft_utils import ADAPTER_CONFIG_NAME

from mar_st.errors import MarError, os_error_message
from mar_st.files import JsonError, one_line, read_json
from mar_st.files.reading import read_record
from mar_st.model.packed import MANIFEST
from mar_st.modules import module_class
from mar_st.modules.layout import (
    FURTHER_KEY,
    ROUTER_FILE,
    check_route,
    listed_modules,
    module_path,
    read_router,
    routers,
    with_further,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: What the libraries raise for a folder with missing, damaged or unknown parts.
_LOADING_ERRORS = (
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)

#: Path of a layer within the name of one of its parameters: `encoder.layer.11`.
_LAYER = re.compile(r"(?:.*?\.)?\d+(?=\.)")

#: Devices to which torch moves the weights of a parameter, not the parameter as an object.
_DEVICES_THAT_KEEP_MARKS = {"cpu", "cuda", "mps", "xpu", "meta"}


@contextmanager
def loading_of(source: object) -> Iterator[None]:
    """Turn the errors for a model that cannot be loaded into one that names it.

    Args:
        source: Folder or Hub name that is loaded; errors for anything else are not turned.

    Raises:
        MarError: A file of weights was cut or is not a safetensors file, a file of a module is missing or
            damaged, or the installed libraries lack a class that the model names.
    """
    try:
        yield
    except MarError:
        raise
    except SafetensorError as error:
        if not isinstance(source, str | Path) or os_error_message(error) is not None:
            raise  # a new encoder, or a disk that is full
        check_files(Path(source))
        raise MarError(
            f"{source} holds damaged weights ({one_line(error)}). Copy, download or save the model again."
        ) from error
    except _LOADING_ERRORS as error:
        of_the_machine = isinstance(error, torch.OutOfMemoryError) or os_error_message(error) is not None
        if of_the_machine or not isinstance(source, str | Path):
            raise
        if (Path(source) / MANIFEST).is_file():
            raise MarError(
                f"{source} holds packed weights ({MANIFEST}). Load the model by its name, such as mar-zh, or "
                "the unpacked folder, mar_zh.path()."
            ) from error
        if (Path(source) / ADAPTER_CONFIG_NAME).is_file():
            base = (read_record(Path(source) / ADAPTER_CONFIG_NAME) or {}).get("base_model_name_or_path")
            raise MarError(
                f"{source} holds an adapter, and its {ADAPTER_CONFIG_NAME} gives {base!r} as the base model "
                f"(base_model_name_or_path); they cannot be loaded ({one_line(error, 400)}). Let it give a "
                "folder or Hub name that this machine can open, or merge the adapter into its base model."
            ) from error
        raise MarError(
            f"{source} cannot be loaded by sentence-transformers {version}, with transformers "
            f"{transformers_version} ({type(error).__name__}: {one_line(error, 800)}). A file may be "
            "missing or damaged, or made for another version: copy, download or save the model again."
        ) from error


def check_files(folder: Path) -> None:
    """Check that the safetensors files below a folder are as long as their headers say, without reading them.

    Raises:
        MarError: A file was cut or is not a safetensors file.
    """
    for path in sorted(folder.rglob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise MarError(
                f"{path} holds damaged weights ({one_line(error)}). Copy, download or save the model again."
            ) from error


def check_weights(model: nn.Module, source: object, *, head: bool = False) -> None:
    """Check that the files of a model hold the weights of its layers, token embeddings and adapter.

    Transformers gives random values to parameters that the files lack, for instance if `config.json` asks for
    more layers than there are. Only heads, such as the pooler of BERT, may be missing. Fewer layers in
    `config.json` than in the files are valid: transformers loads the first ones.

    Args:
        model: A model as it was loaded; modules that transformers did not load, and quantised models, are not
            checked.
        source: Folder or Hub name, for the message.
        head: Refuse models without weights of the head, too.

    Raises:
        MarError: Weights are missing.
    """
    for part in model.modules():
        if not isinstance(part, PreTrainedModel) or getattr(part, "hf_quantizer", None) is not None:
            continue
        missing = _missing_weights(part)
        kind, again = type(part).__name__, "Copy, download or save the model again"
        if missing and len(missing) == len(list(part.named_parameters())):
            raise MarError(
                f"{source} holds no weights of a {kind}, which its config.json asks for: its files name "
                f"other parameters, or none. {again}."
            )
        if added := _of_adapter(part, missing):
            raise MarError(
                f"{source}: transformers {transformers_version} does not load {_listed(added)} of its "
                "adapter. Merge the adapter with peft (PeftModel.from_pretrained(base, adapter)"
                ".merge_and_unload()), save the result with save_pretrained, and give that folder."
            )
        if lacking := _lacking(part, missing):
            count = getattr(part.config, "num_hidden_layers", "unknown")
            raise MarError(
                f"{source} holds no weights of {_listed(lacking)}, but its config.json asks for them "
                f"({kind}, num_hidden_layers {count}). {again}, or correct its config.json."
            )
        if head and missing:
            raise MarError(
                f"{source} is not a trained cross-encoder: it holds no weights of {missing[0]}. Give a "
                "cross-encoder, or train one with 'mar cross-encoder'."
            )


def _missing_weights(model: PreTrainedModel) -> list[str]:
    """Return the parameters to which transformers gave new values, in the order of the model."""
    # Transformers marks the parameters that it reads from files. Conversion to some devices drops all marks.
    # Parameters on the meta device were loaded, and then moved to a disk or to other memory.
    marked = {
        name: one.is_meta or hasattr(one, "_is_hf_initialized") for name, one in model.named_parameters()
    }
    devices = {one.device.type for one in model.parameters()}
    # Of two nested models, transformers keeps this attribute on the outer one.
    loaded = hasattr(model, "_weight_conversions") and devices <= _DEVICES_THAT_KEEP_MARKS
    if not any(marked.values()) and not loaded:
        return []
    ignored = model._keys_to_ignore_on_load_missing or ()
    return [
        name
        for name, there in marked.items()
        if not there and not any(re.search(pattern, name) for pattern in ignored)
    ]


def _of_adapter(model: PreTrainedModel, names: Iterable[str]) -> list[str]:
    """Return those of the parameters that an adapter adds to a layer."""
    adapted = tuple(f"{name}." for name, module in model.named_modules() if hasattr(module, "base_layer"))
    return [name for name in names if name.startswith(adapted) and ".base_layer." not in name]


def _lacking(model: PreTrainedModel, missing: Sequence[str]) -> list[str]:
    """Return layers and embedding tables without weights, and single parameters of other layers."""
    lacking = set(missing)
    incomplete = {
        layer[0]
        for name, _ in model.named_parameters()
        if name not in lacking and (layer := _LAYER.match(name))
    }
    tables = {name for name, module in model.named_modules() if type(module) is nn.Embedding}
    names = []
    for name in missing:
        if layer := _LAYER.match(name):
            names.append(name if layer[0] in incomplete else layer[0])
        elif (table := name.rpartition(".")[0]) in tables:
            names.append(table)
    return list(dict.fromkeys(names))


def _listed(names: Sequence[str], most: int = 4) -> str:
    """Return names for a message; `layer.2 to layer.4` stands for layers in a row."""
    rows: list[list[str]] = []
    for name in names:
        parent, _, number = name.rpartition(".")
        before = f"{parent}.{int(number) - 1}" if number.isdecimal() else None
        if rows and rows[-1][-1] == before:
            rows[-1].append(name)
        else:
            rows.append([name])
    texts = [row[0] if len(row) == 1 else f"{row[0]} to {row[-1]}" for row in rows]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def load_routes(
    path: str, wanted: Mapping[str, str], *, hub: Mapping[str, Any], loading: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Load some routes of a saved model.

    Args:
        path: Folder or Hub name.
        wanted: Saved name of each route, by the name that the route gets in the loaded model.
        hub: Options for finding files: `token`, `cache_folder`, `revision`, `local_files_only`.
        loading: Passed to the modules: `model_kwargs`, `processor_kwargs`, `config_kwargs`, `backend`,
            `trust_remote_code`.

    Returns:
        The modules, and the content of `config_sentence_transformers.json`.

    Raises:
        MarError: A route, a folder of one of its modules, or weights of an encoder are missing.
    """

    def read(name: str) -> Any:
        file = load_file_path(path, name, **hub)
        return json.loads(Path(file).read_text(encoding="utf-8")) if file else None

    modules: list[Any] = []
    trusted = bool(loading.get("trust_remote_code"))
    for entry in read("modules.json"):
        module_path(Path(path), entry["path"], f"{path}/modules.json")
        kind: Any = module_class(entry["type"], path, trust_remote_code=trusted, **hub)
        if issubclass(kind, Router):
            modules.append(_load_router(path, entry["path"], wanted, hub, loading))
        else:
            modules.append(kind.load(path, subfolder=entry["path"], **hub, **loading))
    check_weights(nn.ModuleList(modules), path)
    return modules, read("config_sentence_transformers.json") or {}


def _load_router(
    path: str, subfolder: str, wanted: Mapping[str, str], hub: Mapping[str, Any], loading: Mapping[str, Any]
) -> Router:
    listing = with_further(Router.load_config(path, subfolder=subfolder, **hub), Path(path, subfolder))
    chains: dict[str, Any] = {}
    trusted = bool(loading.get("trust_remote_code"))
    for route, saved in wanted.items():
        check_route(path, route, saved, list(listing["structure"]))
        chains[route] = []
        for key in listing["structure"][saved]:
            part: Any = module_class(listing["types"][key], path, trust_remote_code=trusted, **hub)
            inner = (Path(subfolder) / key).as_posix()
            if Path(path).is_dir() and not (Path(path) / inner).is_dir():
                raise MarError(f"{path} lacks {inner}, a part of its {saved!r} route; copy it there again.")
            chains[route].append(part.load(path, subfolder=inner, **hub, **loading))
    ordered = {name: chains[name] for name in sorted(chains, key=lambda name: name != "document")}
    default = listing["parameters"].get("default_route", next(iter(ordered)))
    if default is not None and default not in ordered:
        default = next(iter(ordered))
    return Router(ordered, default_route=default, allow_empty_key=False)


def load_further(source: str, options: Mapping[str, Any]) -> dict[str, nn.Sequential]:
    """Load the routes that plain sentence-transformers does not see, see `mar_st.modules.layout`.

    Args:
        source: Folder or Hub name of a model that starts with a Router.
        options: Options of `SentenceTransformer`; those for finding files and for loading modules are used.

    Returns:
        The modules of each route by its name.
    """
    hub: dict[str, Any] = {name: options.get(name) for name in ("token", "cache_folder", "revision")}
    hub["local_files_only"] = bool(options.get("local_files_only"))
    loading = {name: options.get(name) for name in ("model_kwargs", "processor_kwargs", "config_kwargs")}
    loading["backend"] = options.get("backend") or "torch"
    loading["trust_remote_code"] = trusted = bool(options.get("trust_remote_code"))
    listing = Router.load_config(source, **hub)
    types = with_further(listing, Path(source))["types"]
    chains: dict[str, nn.Sequential] = {}
    for name, keys in (listing.get(FURTHER_KEY) or {"structure": {}})["structure"].items():
        chain: list[Any] = []
        for key in keys:
            kind: Any = module_class(types[key], source, trust_remote_code=trusted, **hub)
            chain.append(kind.load(source, subfolder=key, **hub, **loading))
        chains[name] = nn.Sequential(*chain)
    return chains


def check_folder(path: Path) -> None:
    """Raise an error if a folder holds no saved MAR, or one whose listings are damaged or lead out of it."""
    listing = path / "modules.json"
    if not listing.is_file():
        raise MarError(
            f"{path} holds no modules.json, so it is not a saved MAR. Build one with MAR.from_encoders."
        )
    types = [entry.type for entry in listed_modules(path)]
    for router in routers(path):
        _check_router(router)
    _check_config(path / "config_sentence_transformers.json")
    if not any(kind.endswith(".Router") for kind in types):
        names = ", ".join(kind.rsplit(".", 1)[-1] for kind in types)
        raise MarError(
            f"{path} is a sentence-transformers model without routes ({names}); "
            "a MAR has a Router. Load it with SentenceTransformer instead."
        )
    _check_types(listing, types)
    for router in routers(path):
        _check_types(router / ROUTER_FILE, read_router(router)["types"].values())


def _check_types(listing: Path, types: Iterable[str]) -> None:
    """Refuse classes that sentence-transformers does not have; it asks for consent to load other code."""
    for kind in types:
        if not kind.startswith("sentence_transformers."):
            continue
        try:
            import_module_class(kind)
        except (ImportError, AttributeError, ValueError) as error:
            raise MarError(
                f"{listing} names the class {kind}, which sentence-transformers {version} does not have. "
                "Update sentence-transformers, or save or copy the model again."
            ) from error


def _check_router(folder: Path) -> None:
    parameters = read_router(folder).get("parameters")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("default_route"), str | None):
        raise MarError(
            f"{folder / ROUTER_FILE} is damaged: 'parameters' should be an object whose 'default_route' is a "
            "route or null. Save or copy the model again."
        )


def _check_config(file: Path) -> None:
    """Check the file of prompts and similarity, which a model may lack."""
    if not file.is_file():
        return
    try:
        content = read_json(file)
    except JsonError as error:
        raise MarError(f"{file} is damaged ({error}). Save or copy the model again.") from error
    prompts = content.get("prompts", {}) if isinstance(content, dict) else None
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise MarError(
            f"{file} is damaged: it should be an object whose 'prompts' are an object of texts. Save or copy "
            "the model again."
        )
