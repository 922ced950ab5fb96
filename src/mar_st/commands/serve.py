"""`mar serve`: answer queries over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Index = Annotated[
    str | None,
    typer.Argument(help="Index that `mar index` made: a folder, a link to one, or a URI; default the sample "
                   "that comes with mar-zh."),
]  # fmt: skip
Encoder = Annotated[
    str | None,
    typer.Option(help="Model of the queries: exported folder, MAR, Hub name or mar-mini; without it only "
                 "vectors are searched."),
]  # fmt: skip
Query = Annotated[
    str | None,
    typer.Option(help="Name of the query encoder, of a model with several, e.g. query-lookup; without "
                 "--encoder of the model that encoded the documents."),
]  # fmt: skip
Host = Annotated[str, typer.Option(help="Address to listen on; other than loopback needs API keys.")]
Port = Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)]
Processes = Annotated[int, typer.Option(help="Processes; they share the memory-mapped index.", min=1)]
ApiKeys = Annotated[
    Path | None, typer.Option(help="File with API keys, one per line, mode 600; default $MAR_API_KEYS.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow a host that others can reach without API keys.")
]
AllowHost = Annotated[
    list[str] | None, typer.Option(help="Another name that the Host of a request may have; * for any.")
]
Name = Annotated[str | None, typer.Option(help="Name of the model; default that of the encoder's folder.")]
DocumentEncoder = Annotated[
    str | None, typer.Option(help="Model that encodes documents, named NAME-document.")
]
Reranker = Annotated[str | None, typer.Option(help="A CrossEncoder that reranks hits on request.")]
Backend = Annotated[
    str,
    typer.Option(
        help="Of an exported encoder: auto, onnx, openvino or a variant; torch for a model that is not."
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Threads of the encoder; default processors by workers.", min=1)
]
MaxBody = Annotated[int, typer.Option(help="Bytes of a request.", min=1)]
MaxTexts = Annotated[int, typer.Option(help="Texts of a request.", min=1)]
MaxTokens = Annotated[int, typer.Option(help="Tokens of a request.", min=1)]
MaxK = Annotated[int, typer.Option(help="Hits of a search.", min=1)]
MaxBatch = Annotated[int, typer.Option(help="Texts per call of the encoder.", min=1)]
Window = Annotated[float, typer.Option(help="Milliseconds to wait for callers that are expected.", min=0)]
MaxQueue = Annotated[int, typer.Option(help="Texts that may wait; more get a 429.", min=1)]
Timeout = Annotated[float, typer.Option(help="Seconds for an answer.", min=0.001)]
MaxConnections = Annotated[int, typer.Option(help="Open connections of one process.", min=1)]
ShutdownTimeout = Annotated[
    float, typer.Option(help="Seconds for what was accepted before the stop.", min=0.1)
]
LogQueries = Annotated[bool, typer.Option("--log-queries", help="Write the texts of queries to the log.")]
AccessLog = Annotated[bool, typer.Option("--access-log", help="One line per request in the log.")]
Watch = Annotated[bool, typer.Option("--watch", help="Open the index again when its folder or link changes.")]


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
    max_connections: MaxConnections = 4096,
    shutdown_timeout: ShutdownTimeout = 30.0,
    log_queries: LogQueries = False,
    access_log: AccessLog = False,
    watch: Watch = False,
) -> None:
    """Serve an index: a search page, /search, OpenAI-compatible /v1/embeddings, metrics.

    SIGHUP or POST /admin/reload opens the index again without losing a request; SIGTERM finishes what was
    accepted.
    """
    from mar_st.serve.keys import read_keys
    from mar_st.serve.run import run
    from mar_st.serve.settings import ServeSettings

    settings = ServeSettings(
        host=host,
        port=port,
        workers=workers,
        model_name=name,
        api_keys=read_keys(api_keys),
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
        from mar_st.serve.sample import sample_index

        index, model = sample_index(typer.echo)
        encoder = encoder or model
    run(index, encoder, settings, say=lambda line: typer.echo(line))
