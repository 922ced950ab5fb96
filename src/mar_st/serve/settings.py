"""Settings of the server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from mar_st.errors import MarError

#: Names and addresses by which a page on this machine may call the server.
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ServeError(MarError):
    """The server cannot start with these settings; the message says what to do."""


@dataclass(frozen=True)
class ServeSettings:
    """Settings of the server: address and limits. Times are seconds, sizes bytes.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        workers: Processes that answer; they share the memory-mapped index.
        model_name: Name of the model in `/v1/embeddings`; default the name of the encoder's folder.
            With the suffix `-document` it names the encoder of documents.
        api_keys: Keys that callers must send one of; empty if no key is required.
        insecure: Allow a host that other machines can reach without keys.
        allow_hosts: More names that a request's `Host` may have; `*` allows any.
        query: Name of the query encoder, in a model that holds several; without a query model, in the model
            that encoded the documents.
        backend: Back end of an exported query encoder, see `mar_st.online.load_query_encoder`.
        threads: Threads of one call of the query encoder; by default `mar serve` divides the processors among
            the workers.
        document_encoder: Model that encodes documents: for the model of that name, or `input_type: document`.
        reranker: A cross-encoder for `rerank`.
        max_body: Size of a request's body.
        max_texts: Texts of one `/v1/embeddings` request.
        max_tokens: Tokens of one request, all texts together.
        max_k: Results of one search.
        max_batch: Texts per call of the encoder and queries per call of the index.
        max_batch_tokens: Tokens per call of the encoder.
        window_ms: Milliseconds that a free encoder waits for callers it expects.
        max_queue: Texts that may wait; more are refused with 429.
        timeout: From the arrival of a request to its answer; after that it is answered with 504.
        body_timeout: For the body of a request to arrive.
        header_timeout: For a connection to send the head of a request.
        send_timeout: For a caller to read 64 KiB of its answer, or the rest of it; otherwise the connection
            is closed.
        keep_alive: How long a connection may be idle between two requests.
        max_connections: Open connections of one worker. At the limit the one that has been silent longest
            is closed for a new one.
        shutdown_timeout: Time limit for accepted requests once the server is stopping.
        log_queries: Write query texts to the log.
        access_log: Write one line per request to the log, without its query string.
        watch: Reopen the index when its folder, or the target of its link, changes.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    model_name: str | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    insecure: bool = False
    allow_hosts: tuple[str, ...] = ()
    query: str | None = None
    backend: str = "auto"
    threads: int | None = None
    document_encoder: str | None = None
    reranker: str | None = None
    max_body: int = 1 << 20
    max_texts: int = 256
    max_tokens: int = 65_536
    max_k: int = 1000
    max_batch: int = 64
    max_batch_tokens: int = 8192
    window_ms: float = 1.0
    max_queue: int = 1024
    timeout: float = 10.0
    body_timeout: float = 10.0
    header_timeout: float = 10.0
    send_timeout: float = 10.0
    keep_alive: float = 60.0
    max_connections: int = 1024
    shutdown_timeout: float = 30.0
    log_queries: bool = False
    access_log: bool = False
    watch: bool = False

    def __post_init__(self) -> None:
        for name in (
            "workers",
            "max_body",
            "max_texts",
            "max_tokens",
            "max_k",
            "max_batch",
            "max_connections",
        ):
            if getattr(self, name) < 1:
                raise ServeError(f"{name} is at least 1; got {getattr(self, name)}.")
        for name in (
            "timeout",
            "body_timeout",
            "header_timeout",
            "send_timeout",
            "keep_alive",
            "shutdown_timeout",
        ):
            if not 0 < getattr(self, name) < float("inf"):
                raise ServeError(f"{name} is a positive number of seconds; got {getattr(self, name)}.")
        if not 0 <= self.port <= 65_535:
            raise ServeError(f"port is from 0 to 65535; got {self.port}.")
        if not self.api_keys and not self.insecure and not is_loopback(self.host):
            raise ServeError(
                f"{self.host} can be reached from other machines, and there are no API keys. Give --api-keys "
                "FILE (or MAR_API_KEYS), listen on 127.0.0.1, or give --insecure if a proxy in front "
                "authenticates callers."
            )

    @property
    def hosts(self) -> frozenset[str] | None:
        """Return the names that the `Host` of a request may have, lower case; `None` for any.

        Without keys a page of any website could make a browser on this machine call the server (DNS
        rebinding). With keys it cannot, so any name is allowed unless `allow_hosts` is set.
        """
        if "*" in self.allow_hosts or (not self.allow_hosts and (self.api_keys or self.insecure)):
            return None
        return frozenset(name.lower() for name in (*LOOPBACK, self.host, *self.allow_hosts))


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
