"""The server: `mar serve`, or `create_app` for your own ASGI server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.files import load_package
from mar_st.options import Argument, Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["ServeSettings", "create_app", "run"]

#: Environment variable with keys, separated by commas or white space.
API_KEYS_VARIABLE = "MAR_API_KEYS"


class ServeSettings(Settings):
    """Address, models and limits of the server."""

    index: Annotated[str | None, Argument()] = Field(
        None,
        description="Index built by `mar index build`: a folder, a link to one, or a URI; default: the "
        "sample that comes with mar-zh.",
    )
    encoder: str | None = Field(
        None,
        description="Query encoder: exported folder, MAR, Hub name or mar-mini; without one, requests must "
        "contain vectors.",
    )
    query_encoder: str | None = Field(
        None,
        description="Name of the query encoder in a model with several, e.g. query-lookup; without "
        "--encoder, in the model that encoded the documents.",
    )
    reranker: str | None = Field(None, description="CrossEncoder that reranks hits on request.")
    name: str | None = Field(
        None, description="Name of the model in the API; default: the name of the encoder's folder."
    )
    host: str = Field(
        "127.0.0.1", description="Address to listen on; any address but loopback needs API keys."
    )
    port: int = Field(8000, ge=0, le=65_535, description="Port to listen on; 0 chooses a free one.")
    api_keys: Path | None = Field(
        None,
        description="File of API keys, one per line, with mode 600; a reload reads it again. Default: "
        f"${API_KEYS_VARIABLE}.",
    )
    timeout: float = Field(
        10.0, gt=0, allow_inf_nan=False, description="Seconds within which a request must be answered."
    )
    log_queries: bool = Field(False, description="Write the texts of queries to the log.")
    title: str | None = Field(None, description="Title of the search page.")
    cors: list[str] = Field(
        [],
        description="Website whose pages may call the server, e.g. https://example.org; may be repeated.",
    )


def create_app(*args: Any, **kwargs: Any) -> FastAPI:
    """Return the server as an ASGI application; see `mar_st.serve.app.create_app`.

    Raises:
        MarError: A package is missing.
    """
    app: FastAPI = load_package("mar_st.serve.app", extra="serve").create_app(*args, **kwargs)
    return app


def run(settings: ServeSettings) -> None:
    """Serve an index over HTTP: a search page, /search, an OpenAI-compatible /v1/embeddings, and metrics.

    SIGHUP or POST /admin/reload reopens the index without losing a request; SIGTERM finishes the accepted
    requests.
    """
    load_package("mar_st.serve.launch", extra="serve").launch(settings)
