"""Pools: for each query, the documents that several retrievers find, with their rank by each retriever.

Lists are merged by reciprocal rank fusion, or by best rank (depth-k union, as in TREC pools). The papers do
not say how they merge their three lists into one of 500.

Source of RRF: G. V. Cormack, C. L. A. Clarke, S. Buettcher, SIGIR 2009.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tqdm.auto import tqdm

from medteb_mteb.curation.files.folder import alone, claim, write_json, write_text
from medteb_mteb.curation.files.read import MANIFEST
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pooling.encoders import encoder_source
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mar_st.mining.retrievers import Retriever
    from medteb_mteb.curation.files.records import Text

__all__ = ["Candidate", "Pooling", "merge", "open_retriever", "pool"]

logger = logging.getLogger(__name__)

#: Added to every rank before it is inverted, as published.
RRF_K = 60

#: Queries that are searched between two writes.
QUERIES_PER_SHARD = 1000


@dataclass(frozen=True)
class Pooling:
    """Settings of pooling.

    Attributes:
        size: Maximum number of documents of a pool.
        depth: Number of documents taken from each retriever.
        merge: `rrf`: by the sum of `1 / (k + rank)`. `union`: by the best rank.
        k: Constant that `rrf` adds to every rank.
        ties: Tie-breaker for equal scores and best ranks: the order of the retrievers, or the id.
    """

    size: int = 500
    depth: int = 500
    merge: Literal["rrf", "union"] = "rrf"
    k: int = RRF_K
    ties: Literal["retriever", "id"] = "retriever"

    def __post_init__(self) -> None:
        if self.size < 1 or self.depth < 1:
            raise BuildError(f"size and depth must be at least 1; got {self.size} and {self.depth}.")
        if self.merge not in ("rrf", "union"):
            raise BuildError(f"merge must be rrf or union; got {self.merge!r}.")

    def to_json(self) -> dict[str, Any]:
        """Return the settings; `k` and `ties` only if they are not the defaults."""
        usual = {"k": RRF_K, "ties": "retriever"}
        return {name: value for name, value in vars(self).items() if usual.get(name) != value}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document of a pool.

    Attributes:
        document: Id of the document.
        ranks: Retriever -> rank, from 1, for the retrievers that found it.
    """

    document: str
    ranks: Mapping[str, int]


def merge(runs: Mapping[str, Sequence[str]], how: Pooling) -> list[Candidate]:
    """Merge several rankings into one; ties are broken by best rank, then as the settings say.

    Args:
        runs: Retriever -> documents, best first.
        how: Settings.
    """
    ranks: dict[str, dict[str, int]] = {}
    for system, documents in runs.items():
        for rank, document in enumerate(documents[: how.depth], start=1):
            ranks.setdefault(document, {})[system] = rank
    first = {document: place for place, document in enumerate(sorted(ranks) if how.ties == "id" else ranks)}

    def order(document: str) -> tuple[float, int, int]:
        own_ranks = ranks[document].values()
        fused = -sum(1 / (how.k + rank) for rank in own_ranks) if how.merge == "rrf" else 0.0
        return fused, min(own_ranks), first[document]

    return [Candidate(document, ranks[document]) for document in sorted(ranks, key=order)[: how.size]]


def open_retriever(
    name: str,
    *,
    source: str | None = None,
    store: str | Path | None = None,
    batch_size: int = 64,
    show_progress: bool = True,
    ids: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Retriever:
    """Open a retriever by name: `bm25`, `bm25:jieba`, `mar-mini`, a model folder, a Hub name, or a run file.

    Args:
        name: Name of the model or run, also used in pools (a run without its folder and suffix).
        source: Path of the model or run, if it differs from the name.
        store: Folder of stored vectors, common to all builds; default none.
        batch_size: Texts per forward pass.
        show_progress: Show a progress bar while texts are encoded.
        ids: Ids of the queries and of the documents; a run needs them.

    Raises:
        BuildError: The model does not exist, or no ids are given for a run.
        RunError: The run cannot be read, or belongs to other queries or documents.
    """
    from mar_st.data.trec import is_run  # lazy: transformers
    from mar_st.mining.retrievers import BM25, Dense  # lazy: torch
    from medteb_mteb.curation.files.run_file import RunFile  # lazy: torch

    if is_run(source or name):
        if ids is None:
            raise BuildError(f"{source or name} is a run, which only 'medteb pool' takes; give a model here.")
        return RunFile(source or name, *ids, name=None if is_run(name) else name)
    if name == "bm25":
        return BM25()
    if name.startswith("bm25:"):
        return BM25(name.removeprefix("bm25:"))  # type: ignore[arg-type]
    place = encoder_source(source or name)
    retriever = Dense(place, store=store, batch_size=batch_size, show_progress=show_progress)
    retriever.name = name
    return retriever


def pool(
    queries: Sequence[Text],
    documents: Sequence[Text],
    retrievers: Sequence[Retriever],
    out: str | Path,
    how: Pooling | None = None,
    *,
    shard: int = QUERIES_PER_SHARD,
    show_progress: bool = True,
    say: Callable[[str], None] = logger.info,
) -> Path:
    """Search with every retriever and write `out/pools.jsonl`.

    A row is `{"query-id", "corpus-ids", "ranks"}`, the ids best first, `ranks` by retriever in their order
    (`null` where it did not find the document). A killed run resumes after the last finished shard of the
    last retriever; vectors are kept in the store.

    Args:
        queries: The queries.
        documents: The documents.
        retrievers: One or more, with different names.
        out: Folder to write.
        how: Settings.
        shard: Number of queries searched between two writes.
        show_progress: Show progress bars.
        say: Called with a line per retriever.

    Returns:
        Path of `pools.jsonl`.

    Raises:
        BuildError: Queries, documents or retrievers are missing, two have the same name, or the folder holds
            other pools.
        MarError: A model does not exist.
    """
    how, folder = how or Pooling(), Path(out)
    names = [retriever.name for retriever in retrievers]
    if not queries or not documents or not names:
        raise BuildError("Pools need queries, documents and a retriever.")
    if len(set(names)) < len(names):
        raise BuildError(f"Two of the retrievers have one name: {', '.join(names)}.")
    identity = {
        "step": "pool",
        "settings": how.to_json() | {"shard": shard},
        "input": _digest(queries, documents),
        "retrievers": {retriever.name: retriever.identity() for retriever in retrievers},
    }
    with alone(folder):
        claim(folder, identity)
        target = folder / "pools.jsonl"
        if (folder / MANIFEST).is_file():
            return target
        for number, retriever in enumerate(retrievers):
            say(f"{retriever.name}: searching {len(documents):,} documents for {len(queries):,} queries")
            _search(
                retriever, queries, documents, folder / f"run-{number:02d}", how.depth, shard, show_progress
            )
        counts = _write_pools(folder, names, queries, how, shard)
        manifest = {
            **identity,
            "queries": len(queries),
            "documents": len(documents),
            **counts,
            "files": {target.name: sha256_of(target)},
        }
        write_json(folder / MANIFEST, manifest)
    return target


def _search(
    retriever: Retriever,
    queries: Sequence[Text],
    documents: Sequence[Text],
    folder: Path,
    depth: int,
    shard: int,
    show_progress: bool,
) -> None:
    """Write the documents that a retriever finds, a file per shard of queries; finished ones are kept."""
    folder.mkdir(exist_ok=True)
    starts = range(0, len(queries), shard)
    missing = [start for start in starts if not (folder / f"{start:08d}.jsonl").is_file()]
    if not missing:
        return
    retriever.prepare([text.full for text in queries], [text.full for text in documents])
    with tqdm(total=len(queries), desc=retriever.name, unit="queries", disable=not show_progress) as bar:
        bar.update(sum(min(shard, len(queries) - start) for start in starts if start not in missing))
        for start in missing:
            rows = range(start, min(start + shard, len(queries)))
            retrieved = retriever.search(list(rows), depth, [[] for _ in rows])  # type: ignore[misc]
            lines = [
                json.dumps([documents[place].id for place in places if place >= 0], ensure_ascii=False)
                for places in retrieved.documents
            ]
            write_text(folder / f"{start:08d}.jsonl", "\n".join(lines) + "\n")
            bar.update(len(rows))


def _write_pools(
    folder: Path, names: Sequence[str], queries: Sequence[Text], how: Pooling, shard: int
) -> dict[str, Any]:
    """Merge the runs, and count the pairs and those that only one retriever found."""
    runs = [_lists(folder / f"run-{number:02d}", len(queries), shard) for number in range(len(names))]
    total, alone_found = 0, dict.fromkeys(names, 0)
    lines = []
    for text, *lists in zip(queries, *runs, strict=True):
        candidates = merge(dict(zip(names, lists, strict=True)), how)
        total += len(candidates)
        for candidate in candidates:
            if len(candidate.ranks) == 1:
                alone_found[next(iter(candidate.ranks))] += 1
        row = {
            "query-id": text.id,
            "corpus-ids": [candidate.document for candidate in candidates],
            "ranks": {name: [candidate.ranks.get(name) for candidate in candidates] for name in names},
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    write_text(folder / "pools.jsonl", "\n".join(lines) + "\n")
    return {"pairs": total, "found by one alone": alone_found}


def _lists(folder: Path, number: int, shard: int) -> Iterator[list[str]]:
    for start in range(0, number, shard):
        with (folder / f"{start:08d}.jsonl").open(encoding="utf-8") as stream:
            for line in islice(stream, shard):
                yield json.loads(line)


def _digest(queries: Sequence[Text], documents: Sequence[Text]) -> str:
    digest = hashlib.sha256()
    for texts in (queries, documents):
        for text in texts:
            digest.update(f"{text.id}\n{text.full}\0".encode())
        digest.update(b"\1")
    return digest.hexdigest()
