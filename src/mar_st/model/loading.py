"""Loading some routes of a saved model, the checks of what is loaded, and the dtypes of its weights."""

from __future__ import annotations

import pickle
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from sentence_transformers import __version__ as version
from sentence_transformers.base.modules import Router
from sentence_transformers.util import import_module_class, load_file_path
from torch import nn
from transformers import PreTrainedModel
from transformers import __version__ as transformers_version

from mar_st.errors import MarError, os_error_message
from mar_st.files import finished, one_line
from mar_st.lookup.module import LookupEncoder
from mar_st.model.names import KNOWN_MODELS
from mar_st.modules.bigrams import HUB_OPTIONS, BigramTransformer
from mar_st.modules.layout import is_query_route, listed_modules, with_further

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


def has_routes(source: str, **hub: Any) -> bool:
    """Return True if a folder or Hub name holds a model with routes.

    Args:
        source: Folder or Hub name.
        **hub: `token`, `cache_folder`, `revision`, `local_files_only`.

    Raises:
        MarError: The model does not exist, or its list of modules is damaged.
    """
    try:
        listing = load_file_path(source, "modules.json", **hub)
        plain = listing is None and load_file_path(source, "config.json", **hub) is not None
    except (OSError, RuntimeError) as error:  # the Hub's errors are OSErrors
        raise MarError(
            f"{source} is neither a folder nor a repository that can be loaded from the Hub "
            f"({one_line(error, 200)})."
        ) from error
    if listing is None and not plain:
        raise MarError(
            f"{source} holds no model (no modules.json, no config.json). Give a model's folder, a Hub name "
            f"or one of {', '.join(KNOWN_MODELS)}."
        )
    if listing is None:
        return False
    return any(entry.type.endswith(".Router") for entry in listed_modules(Path(listing).parent))


@dataclass(frozen=True)
class RouterLoader:
    """Loads some routes of a saved router, and opens no files of others; takes the place of its class.

    Attributes:
        wanted: Saved name of each route, by the name that it gets in the loaded model; `None`: all routes.
    """

    wanted: Mapping[str, str] | None = None

    def load(self, source: str, subfolder: str = "", **options: Any) -> Router:
        """Load a router, as `Module.load`.

        Raises:
            MarError: Its configuration is damaged, or a route or the folder of a module is missing.
        """
        hub: dict[str, Any] = {name: options.get(name) for name in HUB_OPTIONS}
        content = Router.load_config(source, subfolder=subfolder, **hub)
        listing = with_further(content, Path(source, subfolder))
        structure = listing["structure"]

        def load(key: str) -> Any:
            kind, folder = listing["types"][key], Path(subfolder, key).as_posix()
            trusted = bool(options.get("trust_remote_code"))
            module_type: Any = OWN_MODULES.get(kind) or import_module_class(
                kind, source, trust_remote_code=trusted, **hub
            )
            if Path(source).is_dir() and not (Path(source) / folder).is_dir():
                raise MarError(f"{source} lacks {folder}, which its listings name; copy it there again.")
            return module_type.load(source, subfolder=folder, **options)

        chains: dict[str, Any] = {}
        for route, saved in (self.wanted or {name: name for name in structure}).items():
            known = [
                name
                for name in structure
                if self.wanted is None or is_query_route(name) == (route == "query")
            ]
            if saved not in known:
                raise MarError(
                    f"{source} has no {route} encoder {saved!r}; it has {', '.join(known) or 'none'}."
                )
            chains[route] = [load(key) for key in structure[saved]]
        ordered = {name: chains[name] for name in sorted(chains, key=lambda name: name != "document")}
        default = (listing.get("parameters") or {}).get("default_route")
        if default is not None and default not in ordered:
            default = next(iter(ordered))
        return Router(ordered, default_route=default, allow_empty_key=False)


def store_as(folder: str | Path, dtype: str = "float16") -> int:
    """Rewrite every safetensors file below a saved model with its floating-point tensors in a dtype.

    The configuration files keep the dtype they declare, so transformers converts the weights back when it
    loads them: the files are half as large, and the computation does not change. Vectors change by the
    rounding of the weights.

    Returns:
        Bytes of all safetensors files afterwards.
    """
    size = 0
    for path in sorted(Path(folder).rglob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
        stored = {
            name: tensor.to(getattr(torch, dtype)).contiguous() if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        with finished(path) as part:
            save_file(stored, str(part), metadata=metadata)
        size += path.stat().st_size
    return size


def use_native_dtype(model: torch.nn.Module, model_kwargs: Mapping[str, Any] | None = None) -> None:
    """Convert a model to float32 if its processor has no instructions for the dtype of its weights.

    Such a processor computes correctly in float16 and bfloat16, but slowly: on an AMD EPYC with AVX2,
    multilingual-e5-small takes 5.5 times as long in float16 as in float32 for 256 texts. Weights on a GPU
    stay as they are.

    Args:
        model: Model with its weights loaded, changed in place.
        model_kwargs: Options that the model was loaded with; nothing is converted if they name a dtype.
    """
    if {"dtype", "torch_dtype"} & set(model_kwargs or {}):
        return
    half = {dtype for dtype in (torch.bfloat16, torch.float16) if not is_native(dtype)}
    if any(one.dtype in half and one.device.type == "cpu" for one in model.parameters()):
        model.float()


def is_native(dtype: torch.dtype) -> bool:
    """Return True if this processor has instructions for a half-precision dtype, or torch cannot tell."""
    name = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}[dtype]
    try:
        return bool(getattr(torch.ops.mkldnn, name)())
    except (AttributeError, RuntimeError):  # torch without oneDNN
        return True
