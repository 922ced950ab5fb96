"""Documents by their ids, read for all waiting callers together."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.serve.errors import too_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.index import Index
    from mar_st.index.documents import Stored

__all__ = ["MAX_READS", "DocumentReader"]

#: Maximum documents that are requested by id at the same time.
MAX_READS = 64


class DocumentReader:
    """Looks up ids in one thread: those of all waiting callers in one pass through the index.

    Each lookup scans all ids, and waking the event loop costs more than reading a document.

    Args:
        index: The open index.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="documents")
        self._waiting: list[tuple[str, asyncio.Future[Stored | None]]] = []
        self._reading = 0
        self._task: asyncio.Task[None] | None = None

    async def read(self, name: str) -> Stored | None:
        """Return the document of an id, `None` if there is none.

        Raises:
            ApiError: 429: `MAX_READS` callers wait already.
            IndexingError: The index cannot be read.
        """
        if len(self._waiting) + self._reading >= MAX_READS:
            raise too_many(1)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Stored | None] = loop.create_future()
        self._waiting.append((name, answer))
        if self._task is None:
            self._task = loop.create_task(self._work())
        return await answer

    def close(self) -> None:
        """End the thread after its current read."""
        self._thread.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                self._reading = len(batch)
                names = [name for name, _ in batch]
                documents = await loop.run_in_executor(self._thread, self._look_up, names)
                self._reading = 0
                for name, answer in batch:
                    if answer.done():  # the client disconnected
                        continue
                    document = documents.get(name)
                    if isinstance(document, Exception):
                        answer.set_exception(document)
                    else:
                        answer.set_result(document)
        finally:
            self._task = None

    def _look_up(self, names: Sequence[str]) -> dict[str, Stored | Exception]:
        """Return the documents by id, with an error in place of each that cannot be read."""
        try:
            return dict(self.index.find_documents(names))
        except Exception as error:
            if len(names) == 1 or not isinstance(error, MarError):
                return dict.fromkeys(names, error)
        # A damaged document must not fail the others.
        return {name: document for one in names for name, document in self._look_up([one]).items()}
