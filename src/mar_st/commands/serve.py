"""`mar serve`: answer queries over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Index = Annotated[
    str | None,
    typer.Argument(help="Index built by `mar index build`: a folder, a link to one, or a URI; default: the "
                   "sample that comes with mar-zh."),
]  # fmt: skip
Encoder = Annotated[
    str | None,
    typer.Option(help="Query encoder: exported folder, MAR, Hub name or mar-mini; without one, requests must "
                 "contain vectors."),
]  # fmt: skip
Query = Annotated[
    str | None,
    typer.Option("--query-encoder",
                 help="Name of the query encoder in a model with several, e.g. query-lookup; without "
                 "--encoder, in the model that encoded the documents."),
]  # fmt: skip
Host = Annotated[str, typer.Option(help="Address to listen on; any address but loopback needs API keys.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)]
Processes = Annotated[
    int, typer.Option(help="Number of processes; they share the memory-mapped index.", min=1)
]
ApiKeys = Annotated[
    Path | None,
    typer.Option(
        help="File of API keys, one per line, with mode 600; a reload reads it again. Default: $MAR_API_KEYS."
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow an address that other machines can reach, without API keys.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Additional name, without a port, to accept in the Host header; * accepts any."),
]
Name = Annotated[
    str | None, typer.Option(help="Name of the model in the API; default: the name of the encoder's folder.")
]
DocumentEncoder = Annotated[
    str | None, typer.Option(help="Model that encodes documents, served as NAME-document.")
]
Reranker = Annotated[str | None, typer.Option(help="CrossEncoder that reranks hits on request.")]
Backend = Annotated[
    str,
    typer.Option(
        help="Backend of an exported encoder: auto, onnx, openvino or a variant; torch for other models."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(help="Number of threads of the encoder; default: processors divided by workers.", min=1),
]
MaxBody = Annotated[int, typer.Option(help="Maximum number of bytes per request.", min=1)]
MaxTexts = Annotated[int, typer.Option(help="Maximum number of texts per request.", min=1)]
MaxTokens = Annotated[int, typer.Option(help="Maximum number of tokens per request.", min=1)]
MaxK = Annotated[int, typer.Option(help="Maximum number of hits per search.", min=1)]
MaxBatch = Annotated[int, typer.Option(help="Maximum number of texts per call of the encoder.", min=1)]
Window = Annotated[
    float, typer.Option(help="Milliseconds to wait for further requests to share a batch.", min=0)
]
MaxQueue = Annotated[
    int, typer.Option(help="Maximum number of queued texts; requests beyond it get status 429.", min=1)
]
Timeout = Annotated[float, typer.Option(help="Seconds within which a request must be answered.", min=0.001)]
MaxConnections = Annotated[int, typer.Option(help="Maximum number of open connections per process.", min=1)]
ShutdownTimeout = Annotated[
    float, typer.Option(help="Seconds to finish accepted requests when the server stops.", min=0.1)
]
LogQueries = Annotated[bool, typer.Option("--log-queries", help="Write the texts of queries to the log.")]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Log one line per request.")]
Watch = Annotated[bool, typer.Option("--watch", help="Reopen the index when its folder or link changes.")]


def serve(
    index: Index = None,
    encoder: Encoder = None,
    query: Query = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Processes = 1,
    api_keys: ApiKeys = None,
    insecure: Insecure = False,
    allow_host: AllowHost = None,
    name: Name = None,
    document_encoder: DocumentEncoder = None,
    reranker: Reranker = None,
    backend: Backend = "auto",
    threads: Threads = None,
    max_body: MaxBody = 1 << 20,
    max_texts: MaxTexts = 256,
    max_tokens: MaxTokens = 65_536,
    max_k: MaxK = 1000,
    max_batch: MaxBatch = 64,
    window_ms: Window = 1.0,
    max_queue: MaxQueue = 1024,
    timeout: Timeout = 10.0,
    max_connections: MaxConnections = 1024,
    shutdown_timeout: ShutdownTimeout = 30.0,
    log_queries: LogQueries = False,
    access_log: AccessLog = False,
    watch: Watch = False,
) -> None:
    """Serve an index over HTTP.

    Provides a search page, /search, an OpenAI-compatible /v1/embeddings, and metrics.

    SIGHUP or POST /admin/reload reopens the index without losing a request; SIGTERM finishes the accepted
    requests.
    """
    from mar_st.serve.api.keys import read_keys  # lazy: start-up
    from mar_st.serve.launch import check_packages, run  # lazy: start-up
    from mar_st.serve.settings import ServeSettings  # lazy: start-up

    check_packages()
    keys = read_keys(api_keys)
    settings = ServeSettings(
        host=host,
        port=port,
        workers=workers,
        model_name=name,
        api_keys=api_keys if api_keys is not None and api_keys.is_file() else keys,  # a pipe is read once
        insecure=insecure,
        allow_hosts=tuple(allow_host or ()),
        query=query,
        backend=backend,
        threads=threads,
        document_encoder=document_encoder,
        reranker=reranker,
        max_body=max_body,
        max_texts=max_texts,
        max_tokens=max_tokens,
        max_k=max_k,
        max_batch=max_batch,
        window_ms=window_ms,
        max_queue=max_queue,
        timeout=timeout,
        max_connections=max_connections,
        shutdown_timeout=shutdown_timeout,
        log_queries=log_queries,
        access_log=access_log,
        watch=watch,
    )
    if index is None:
        from mar_st.serve.sample import sample_index  # lazy: start-up

        index, model = sample_index(typer.echo)
        encoder = encoder or model
    run(index, encoder, settings, say=lambda line: typer.echo(line))
