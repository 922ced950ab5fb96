"""Opening a model of any kind: a MAR, or a sentence-transformers model without routes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util import load_file_path

from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.model.dtypes import use_native_dtype
from mar_st.model.loading import OWN_MODULES, check_weights, loading_of
from mar_st.model.mar import MAR
from mar_st.model.names import KNOWN_MODELS, model_source
from mar_st.model.tokenizers import check_tokenizer
from mar_st.modules.layout import listed_modules

if TYPE_CHECKING:
    from mar_st.model.mar import Routes


class PlainModel(SentenceTransformer):
    """A model without routes; modules of this package need no `trust_remote_code`."""

    _module_classes = OWN_MODULES


def has_routes(source: str) -> bool:
    """Return True if a folder or Hub name holds a model with routes.

    Raises:
        MarError: The model does not exist, or its list of modules is damaged.
    """
    try:
        listing = load_file_path(source, "modules.json")
        plain = listing is None and load_file_path(source, "config.json") is not None
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


def open_model(
    source: str | Path,
    *,
    routes: Routes = "both",
    query: str | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Load a model in evaluation mode; a `MAR` if it has routes.

    Unlike `SentenceTransformer(source)`, this needs no `trust_remote_code` for modules of this package, such
    as a lookup encoder. On a CPU without instructions for half precision, weights in half precision are
    converted to float32 (`use_native_dtype`). A tokenizer without a padding token gets one.

    Args:
        source: Folder, Hub name, or name of a model of this project.
        routes: Which side of a model with routes to load.
        query: Name of the query encoder to load, if the model has several; see `MAR.from_pretrained`.
        **options: As for `SentenceTransformer`.

    Raises:
        MarError: The model does not exist, has no such route or query encoder, or has missing or damaged
            files.
    """
    path = model_source(source)
    if has_routes(path):
        with loading_of(path):
            model: SentenceTransformer = MAR.from_pretrained(path, routes=routes, query=query, **options)
    elif query is not None:
        raise MarError(
            f"{source} is a model without routes: expected a MAR that has the query encoder {query!r}. Leave "
            "out the name of the query encoder, or give such a MAR."
        )
    else:
        with loading_of(path):
            model = PlainModel(path, **options).eval()
            check_weights(model, path)
            check_tokenizer(getattr(model[0], "tokenizer", None), path)
    use_native_dtype(model, options.get("model_kwargs"))
    return model
