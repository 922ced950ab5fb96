"""Settings of the server."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path

#: Names and addresses by which a page on this machine may call the server.
LOOPBACK = ("127.0.0.1", "::1", "localhost")

#: A name, an IPv4 address, an IPv6 address with or without brackets, or `*`.
_HOST_NAME = re.compile(r"\*|[^\s:@/\[\]*]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*|\[[0-9a-fA-F:.]+\]")


class ServeError(MarError):
    """The server cannot start with these settings; the message says what to do."""


@dataclass(frozen=True)
class ServeSettings:
    """Settings of the server: address and limits. Times are seconds, sizes bytes.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        workers: Number of server processes; they share the memory-mapped index.
        model_name: Name of the model in `/v1/embeddings`; default the name of the encoder's folder.
            With the suffix `-document` it names the document encoder.
        api_keys: API keys, or the file that lists them, which a reload reads again; a caller must send one of
            them. Empty: no key is required.
        insecure: Allow a host that other machines can reach without keys.
        allow_hosts: Additional names, without a port, allowed in a request's `Host`; `*` allows any.
        query: Name of the query encoder, for a model with several; without a query model, in the model
            that encoded the documents.
        backend: Back end of an exported query encoder, see `mar_st.online.load_query_encoder`.
        threads: Threads of one call of the query encoder; by default `mar serve` divides the processors among
            the workers.
        document_encoder: Model that encodes documents, for requests to the document model or with
            `input_type: document`.
        reranker: A cross-encoder for `rerank`.
        max_body: Maximum size of a request body.
        max_texts: Maximum number of texts in a `/v1/embeddings` request.
        max_tokens: Maximum number of tokens in a request, over all its texts.
        max_k: Maximum number of results of a search.
        max_batch: Maximum number of texts per encoder call, and of queries per index call.
        max_batch_tokens: Maximum number of tokens per encoder call.
        window_ms: Maximum number of milliseconds that a free encoder waits for expected callers.
        max_queue: Maximum number of waiting texts; more are refused with 429.
        timeout: Time limit from the arrival of a request to its response; after that the response is 504.
        body_timeout: Time limit for receiving the body of a request.
        header_timeout: Time limit for receiving the head of a request.
        send_timeout: Time limit for a client to read 64 KiB of its response, or the rest of it; otherwise the
            connection is closed.
        keep_alive: Maximum idle time of a connection between two requests.
        max_connections: Maximum number of open connections per worker. At the limit, the connection that has
            been silent longest is closed for a new one.
        shutdown_timeout: Time limit for accepted requests once the server is stopping.
        log_queries: Write query texts to the log.
        access_log: Write one line per request to the log, without its query string.
        watch: Reopen the index when its folder, or the target of its link, changes.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    model_name: str | None = None
    api_keys: tuple[str, ...] | Path = field(default=(), repr=False)
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
            "max_batch_tokens",
            "max_queue",
            "max_connections",
            "threads",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ServeError(f"{name} is at least 1; got {value}.")
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
        try:
            (self.model_name or "").encode()
        except UnicodeEncodeError as error:  # of a folder whose name is not UTF-8
            raise ServeError(
                f"The name of the model, {self.model_name!r}, cannot be written as UTF-8, so no response "
                "could hold it. Give another --name."
            ) from error
        for name in self.allow_hosts:
            if not _HOST_NAME.fullmatch(name):
                raise ServeError(
                    f"--allow-host takes a name or an address without scheme and port, such as "
                    f"search.example.org or 192.0.2.1, or * for any; got {name!r}."
                )
        if not _is_host(self.host):
            raise ServeError(
                f"--host takes a name or an address without scheme, brackets and port, such as 127.0.0.1 or "
                f"::1; got {self.host!r}."
            )
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
        return frozenset(name.lower().strip("[]") for name in (*LOOPBACK, self.host, *self.allow_hosts))


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_host(host: str) -> bool:
    """Return True if the text can be a name or an address to listen on; names are not looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host.rpartition(".")[2].isdecimal():  # no name ends like this, but short addresses do: 127.1
            try:
                socket.inet_aton(host)
            except (OSError, UnicodeError):
                return False
        return re.fullmatch(r"[^\s:@/\[\]*]+", host) is not None
    return True
