"""Loading a saved MAR, whole or some routes of it, and the checks of what is loaded.

Only the files of the routes that are loaded are opened.
"""

from __future__ import annotations

import pickle
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from sentence_transformers import __version__ as version
from sentence_transformers.base.modules import Router
from sentence_transformers.util import import_module_class, load_file_path
from torch import nn
from transformers import PreTrainedModel
from transformers import __version__ as transformers_version

from mar_st.errors import MarError, os_error_message
from mar_st.files import one_line, read_json
from mar_st.lookup.module import LookupEncoder
from mar_st.modules.bigrams import BigramTransformer
from mar_st.modules.layout import ROUTER_FILE, check_route, module_path, with_further

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Modules of this package by their names in saved models. sentence-transformers imports classes of other
#: packages only with `trust_remote_code`; these belong to the package that loads them and need no consent.
OWN_MODULES: Mapping[str, type[nn.Module]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind for kind in (BigramTransformer, LookupEncoder)
}

#: What the libraries raise for a folder with missing, damaged or unknown parts.
_LOADING_ERRORS = (
    AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError, SafetensorError,
    StrictDataclassError, pickle.UnpicklingError,
)  # fmt: skip

#: Name of a parameter of a numbered layer, such as `encoder.layer.11.output.dense.weight`.
_IN_LAYER = re.compile(r"(?:.*\.)?\d+\.")

#: Devices to which torch moves the weights of a parameter, not the parameter as an object.
_DEVICES_THAT_KEEP_MARKS = {"cpu", "cuda", "mps", "xpu", "meta"}

#: Most names of missing weights in a message.
_LISTED = 4


def module_class(name: str, source: str, **options: Any) -> Any:
    """Return the class of a saved module.

    Args:
        name: Full class name, including its module.
        source: Folder or Hub name of the model that contains it.
        **options: `trust_remote_code`, `token`, `cache_folder`, `revision`, `local_files_only`.

    Raises:
        ValueError: The class is neither of this package nor of sentence-transformers, and `trust_remote_code`
            is False.
    """
    trusted = bool(options.pop("trust_remote_code", False))
    return OWN_MODULES.get(name) or import_module_class(name, source, trust_remote_code=trusted, **options)


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
    except _LOADING_ERRORS as error:
        of_the_machine = isinstance(error, torch.OutOfMemoryError) or os_error_message(error) is not None
        if of_the_machine or not isinstance(source, str | Path):
            raise
        check_files(Path(source))
        raise MarError(
            f"{source} cannot be loaded by sentence-transformers {version}, with transformers "
            f"{transformers_version} ({type(error).__name__}: {one_line(error, 500)}). A file may be missing "
            "or damaged, or made for another version: copy or download it again. The base model of an "
            "adapter must be there, too; packed weights are loaded by the model's name, such as mar-zh."
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
        tables = {f"{name}.weight" for name, one in part.named_modules() if type(one) is nn.Embedding}
        everything = len(missing) == len(list(part.parameters()))
        needed = [name for name in missing if head or everything or name in tables or _IN_LAYER.match(name)]
        if not needed:
            continue
        more = f" and {len(needed) - _LISTED} more" if len(needed) > _LISTED else ""
        raise MarError(
            f"{source} holds no weights of {', '.join(needed[:_LISTED])}{more}, but its config.json asks for "
            f"them ({type(part).__name__}, num_hidden_layers "
            f"{getattr(part.config, 'num_hidden_layers', 'unknown')}). Give "
            f"{'a trained cross-encoder' if head else 'the whole model, with an adapter merged'}."
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


def load_saved(source: str, wanted: Mapping[str, str] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Load a saved MAR, and return the arguments of `SentenceTransformer` that make the model.

    Args:
        source: Folder or Hub name.
        wanted: Saved name of each route, by the name that it gets in the loaded model; default all routes.
        options: Options of `SentenceTransformer`; those for finding files and for loading modules are used.

    Raises:
        MarError: The folder is no MAR, or a route, a folder of one of its modules, or weights of an encoder
            are missing or damaged.
    """
    hub: dict[str, Any] = {name: options.get(name) for name in ("token", "cache_folder", "revision")}
    hub["local_files_only"] = bool(options.get("local_files_only"))
    loading = {name: options.get(name) for name in ("model_kwargs", "processor_kwargs", "config_kwargs")}
    loading |= {"backend": options.get("backend") or "torch"}
    loading |= {"trust_remote_code": bool(options.get("trust_remote_code"))}

    def read(name: str) -> Any:
        file = load_file_path(source, name, **hub)
        return read_json(Path(file)) if file else None

    def load(kind: str, subfolder: str) -> Any:
        module_type = module_class(kind, source, trust_remote_code=loading["trust_remote_code"], **hub)
        if Path(source).is_dir() and subfolder and not (Path(source) / subfolder).is_dir():
            raise MarError(f"{source} lacks {subfolder}, which its listings name; copy it there again.")
        return module_type.load(source, subfolder=subfolder, **hub, **loading)

    with loading_of(source):
        listing = read("modules.json")
        if not listing or not any(entry["type"].endswith(".Router") for entry in listing):
            raise MarError(
                f"{source} is not a saved MAR: expected a modules.json with a Router. Load a model without "
                "routes with SentenceTransformer, or build a MAR with MAR.from_encoders."
            )
        modules: list[Any] = []
        for entry in listing:
            module_path(Path(source), entry["path"], f"{source}/modules.json")
            if entry["type"].endswith(".Router"):
                router = with_further(
                    read(Path(entry["path"], ROUTER_FILE).as_posix()), Path(source, entry["path"])
                )
                modules.append(_router(source, entry["path"], router, wanted, load))
            else:
                modules.append(load(entry["type"], entry["path"]))
        config = read("config_sentence_transformers.json") or {}
        check_weights(nn.ModuleList(modules), source)
    return {
        "modules": modules,
        "prompts": {**(config.get("prompts") or {}), **(options.get("prompts") or {})},
        **{
            name: config.get(name) if options.get(name) is None else options[name]
            for name in ("similarity_fn_name", "default_prompt_name")
        },
    }


def _router(
    source: str, folder: str, listing: Mapping[str, Any], wanted: Mapping[str, str] | None, load: Any
) -> Router:
    structure = listing["structure"]
    chains: dict[str, Any] = {}
    for route, saved in (wanted or {name: name for name in structure}).items():
        check_route(source, route.partition("-")[0], saved, structure)
        chains[route] = [
            load(listing["types"][key], Path(folder, key).as_posix()) for key in structure[saved]
        ]
    ordered = {name: chains[name] for name in sorted(chains, key=lambda name: name != "document")}
    default = (listing.get("parameters") or {}).get("default_route")
    if default is not None and default not in ordered:
        default = next(iter(ordered))
    return Router(ordered, default_route=default, allow_empty_key=False)
