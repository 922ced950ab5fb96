"""Opening a model of any kind: a MAR, or a sentence-transformers model without routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer

from mar_st.errors import MarError
from mar_st.model.dtypes import use_native_dtype
from mar_st.model.loading import OWN_MODULES, check_weights, has_routes, loading_of
from mar_st.model.mar import MAR
from mar_st.model.names import model_source
from mar_st.model.tokenizers import check_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.model.mar import Routes


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
        model: SentenceTransformer = MAR.from_pretrained(path, routes=routes, query=query, **options)
    elif query is not None:
        raise MarError(
            f"{source} is a model without routes: expected a MAR that has the query encoder {query!r}. Leave "
            "out the name of the query encoder, or give such a MAR."
        )
    else:
        with loading_of(path):
            model = SentenceTransformer._load_with_module_classes(path, OWN_MODULES, **options).eval()
            check_weights(model, path)
            check_tokenizer(getattr(model[0], "tokenizer", None), path)
    use_native_dtype(model, options.get("model_kwargs"))
    return model
