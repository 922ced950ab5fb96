"""Hot swap: the next index is opened and tested beside the current one, then replaces it."""

from __future__ import annotations

import asyncio
import gc
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.index import Index, Searcher
from mar_st.model.reranker import Reranker
from mar_st.online import load_query_encoder
from mar_st.serve.engine.documents import check_space
from mar_st.serve.engine.search_engine import SearchEngine
from mar_st.serve.settings import ServeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mar_st.online import QueryEncoder
    from mar_st.serve.metrics import Metrics
    from mar_st.serve.settings import ServeSettings

_LOG = logging.getLogger(__name__)

#: Files that change whenever a folder with an index, an exported encoder, a model or a cross-encoder changes.
_LISTINGS = ("manifest.json", "export.json", "modules.json", "config.json")

#: Query of the searches before the first request.
_WARMUP_TEXT = "预热"

#: Sizes of the batches that an encoder encodes before the first request.
_WARMUP_BATCHES = (1, 4, 16)


@dataclass(frozen=True)
class SearcherSource:
    """Sources of a searcher, from which it can be reopened.

    Attributes:
        index: Folder (or link to one) or URI of the index.
        encoder: Model that encodes queries, or an open encoder; `None` to search by vectors alone.
        reranker: Folder or Hub name of a cross-encoder.
        query: Name of the query encoder, for a model with several; without `encoder`, in the model that
            encoded the documents.
        backend: Back end of an exported encoder.
        threads: Threads of the encoder.
    """

    index: str
    encoder: QueryEncoder | str | Path | None = None
    reranker: str | None = None
    query: str | None = None
    backend: str = "auto"
    threads: int | None = None

    def open(self, before: OpenedSearcher | None = None) -> OpenedSearcher:
        """Open the searcher; encoder and reranker of `before` are reused if their files are the same.

        Raises:
            MarError: Index or encoder cannot be opened, or do not match.
        """
        of_index = stamp(self.index)
        index = Index.open(self.index)
        encoder: Any = self.encoder
        if encoder is None and self.query is not None:
            encoder = index.model_source()
        model = encoder if isinstance(encoder, str | Path) else None
        stamps = (
            of_index,
            None if model is None else stamp(model),
            None if self.reranker is None else stamp(self.reranker),
        )
        if model is not None:
            if before is not None and before.stamps[1] == stamps[1]:
                encoder = before.encoder
            else:
                encoder = load_query_encoder(
                    model, backend=self.backend, threads=self.threads, query=self.query
                )
        elif self.query is not None:
            raise ServeError(
                f"The encoder is open already; query={self.query!r} is chosen when it is loaded."
            )
        reranker = None
        if self.reranker is not None:
            same = before is not None and before.stamps[2] == stamps[2]
            reranker = before.searcher.reranker if before is not None and same else Reranker(self.reranker)
        searcher = Searcher(index, encoder, reranker=reranker)
        if before is not None and encoder is not None and encoder is before.encoder:
            _check_same_space(before.searcher.index, index)
        return OpenedSearcher(searcher, encoder, stamps, model)


@dataclass(frozen=True)
class OpenedSearcher:
    """Result of `SearcherSource.open`.

    Attributes:
        searcher: The searcher.
        encoder: Its query encoder.
        stamps: Stamps of the files of index, encoder and reranker when they were opened, see `stamp`.
        model: Source that the encoder was loaded from, if any.
    """

    searcher: Searcher
    encoder: Any
    stamps: tuple[object, object, object] = (None, None, None)
    model: str | Path | None = None


def _check_same_space(before: Index, index: Index) -> None:
    """Check that an index has the space of the index before it, for an encoder that stays and names no space.

    Raises:
        ServeError: Their document spaces are known and differ.
    """
    if before.space and index.space and before.space != index.space:
        raise ServeError(
            f"The vectors of {index.name} belong to another document space ({index.space[:12]}) than those "
            f"of the index before it ({before.space[:12]}), and the query encoder is still the same. Replace "
            "the encoder, too, or restart the server."
        )


def stamp(source: str | Path) -> object:
    """Return a value that changes with a folder: its resolved path and its listing's inode, time and size."""
    try:
        folder = Path(source).resolve()
    except (OSError, RuntimeError):  # symbolic links in a circle
        folder = Path(source).absolute()
    for name in _LISTINGS:
        try:
            status = (folder / name).stat()
        except OSError:
            continue
        return str(folder), name, status.st_ino, status.st_mtime_ns, status.st_size
    return str(folder)


async def _retire(engine: SearchEngine) -> None:
    """Close an engine when its last request has left, and free its memory."""
    await engine.retire()
    del engine
    if gc.get_freeze_count():
        await asyncio.to_thread(_collect_frozen)


def _collect_frozen() -> None:
    """Free objects that were frozen (see `mar_st.serve.launch.worker`) and are no longer used.

    An engine refers to itself, so only garbage collection frees it, and that skips frozen objects.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class Generations:
    """The engine that answers, and the change to the next one.

    Args:
        source: Opens the next generation; `None` for an open searcher.
        opened: The first generation.
        settings: Limits.
        metrics: Counts reloads.
        documents: Encodes documents, into the space of every generation.
        on_reload: Called at the start of each reload, which its error ends.

    Raises:
        ServeError: The document encoder belongs to another space than the index.
    """

    def __init__(
        self,
        source: SearcherSource | None,
        opened: OpenedSearcher,
        settings: ServeSettings,
        metrics: Metrics,
        documents: QueryEncoder | None = None,
        on_reload: Callable[[], None] | None = None,
    ) -> None:
        self._on_reload = on_reload
        self.source, self.settings, self.metrics, self.documents = source, settings, metrics, documents
        self.number = 0
        self._opened = opened
        self._changing = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self.current = self._engine(opened)
        self._switched()

    @property
    def stamp(self) -> object:
        """Return the current stamp of the index folder."""
        return None if self.source is None else stamp(self.source.index)

    def changed(self) -> bool:
        """Return True if the index was moved or replaced since it was opened."""
        return self.stamp != self._opened.stamps[0]

    async def reload(self) -> None:
        """Reopen the index and switch to it; requests in progress finish on the old one.

        Raises:
            MarError: The index cannot be opened; the old generation stays in use.
        """
        async with self._changing:
            if self.source is None:
                raise MarError("This server was given an open index, so there is no folder to open again.")
            try:
                opened, engine = await asyncio.to_thread(self._prepare, self.source, self._opened)
            except Exception as error:
                self.metrics.reloads.labels("failed").inc()
                if isinstance(error, MarError):
                    raise
                raise MarError(f"The index cannot be opened ({type(error).__name__}: {error}).") from error
            old, self.current, self._opened = self.current, engine, opened
            self.metrics.reloads.labels("ok").inc()
            self._switched()
            task = asyncio.create_task(_retire(old))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Finish accepted work and end all threads."""
        await asyncio.gather(*self._retiring, self.current.retire())

    def _prepare(self, source: SearcherSource, before: OpenedSearcher) -> tuple[OpenedSearcher, SearchEngine]:
        if self._on_reload is not None:
            self._on_reload()
        opened = source.open(before)
        return opened, self._engine(opened, before.encoder)

    def _engine(self, opened: OpenedSearcher, warm: object = None) -> SearchEngine:
        """Return an engine that has answered once, so that first callers do not wait for disk and runtime.

        Args:
            opened: Searcher and encoder of the engine.
            warm: An encoder that needs no warm-up.
        """
        searcher, dim = opened.searcher, opened.searcher.index.dim
        if self.documents is not None:
            check_space(self.documents, searcher.index)
        reranked = 0 if searcher.reranker is None else 1
        vector = np.full((1, dim), dim**-0.5, dtype=np.float32)
        searcher.search_vectors(vector, [_WARMUP_TEXT], k=1, rerank=reranked)
        if searcher.index.has_words:  # jieba reads its dictionary; meanwhile no other thread runs
            searcher.index.find_words([_WARMUP_TEXT], 1, None)
        if opened.encoder is not None and opened.encoder is not warm:
            for size in _WARMUP_BATCHES:
                opened.encoder.encode(["预热的一句话而已"] * size)
        return SearchEngine(searcher, opened.encoder, self.settings, self.metrics)

    def _switched(self) -> None:
        self.number += 1
        self.metrics.answers(self.settings.model_name or "", self.current.query)
        self.metrics.generation.set(self.number)
        self.metrics.documents.set(self.current.documents)
        _LOG.info("index %d: %d documents", self.number, self.current.documents)
