"""Choosing a kind of index: candidates are built on a sample of the vectors and measured.

Latency is measured with single queries on the sample and projected: the time to compare with all vectors
grows with their number, to walk a graph with the logarithm of that number, to probe cells with their size.
Recall is measured on the sample; search settings are tuned on the whole index once it is built
(`mar_st.index.tune`).
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.index.errors import IndexingError
from mar_st.index.registry import kind_of, registered
from mar_st.index.source import RowsSource
from mar_st.index.tune import RECALL_DEPTH, exact_results, recall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mar_st.index.kind import IndexKind
    from mar_st.index.source import VectorSource
    from mar_st.index.tune import ExactResults

#: Vectors of the sample.
SAMPLE_SIZE = 20_000

#: Milliseconds of an exact search up to which no other kind is needed.
FAST_ENOUGH_MS = 5.0

#: A simpler candidate is preferred if it takes at most this many times as long as the fastest.
_SIMILAR_TIME_RATIO = 1.1

#: Number of single queries that are timed.
_TIMED_QUERIES = 50


@dataclass
class IndexCandidate:
    """A candidate with its measurements.

    Attributes:
        kind: Its kind.
        params: Build settings.
        search: Search settings.
        megabytes: Memory of the whole index, computed.
        recall: Recall on the sample.
        sample_ms: Median milliseconds of a query on the sample.
        projected_ms: The same projected to all vectors.
        note: The reason why it was left out, or a note that it was chosen.
    """

    kind: str
    params: dict[str, Any]
    megabytes: float
    search: dict[str, int] = field(default_factory=dict)
    recall: float | None = None
    sample_ms: float | None = None
    projected_ms: float | None = None
    note: str = ""


def choose(
    source: VectorSource,
    *,
    limit: int | None,
    target: float,
    queries: np.ndarray | None = None,
    sample: int = SAMPLE_SIZE,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure candidates and pick one.

    Args:
        source: All vectors.
        limit: Bytes that the index may take in memory; default no limit.
        target: Recall@10 to reach.
        queries: Query vectors; default: generated ones (`mar_st.index.tune.made_queries`).
        sample: Vectors to measure on.
        say: Receives a line per measurement.

    Returns:
        `kind`, `params`, `search`, `why` and `measured` (a row per candidate).

    Raises:
        IndexingError: No kind fits into the memory.
    """
    count, dim = len(source), source.dim
    rows = np.sort(np.random.default_rng(2).choice(count, min(sample, count), replace=False))
    sample_source = RowsSource([(source.take(rows), np.arange(len(rows)))])
    expected = exact_results(sample_source, queries)
    table: list[IndexCandidate] = []
    for kind, params in _candidates(dim):
        settings = kind.settings(params, dim, count)
        bytes_needed = kind.memory(settings, dim, count)
        if limit is not None and bytes_needed > limit:
            table.append(
                IndexCandidate(kind.kind, params, bytes_needed / 1e6, note="does not fit into the memory")
            )
            continue
        say(f"measuring {kind.kind} {params or ''} on {len(sample_source)} vectors")
        with tempfile.TemporaryDirectory() as name:
            part = Path(name)
            sample_settings = kind.settings(params, dim, len(sample_source))
            kind.construct(part, sample_source, sample_settings, progress=False)
            growth = kind.growth(settings, sample_settings, count, len(sample_source))
            table += _measure(kind(part), expected, params, bytes_needed, growth, target)
        last = table[-1]
        if kind.EXACT and last.projected_ms is not None and last.projected_ms <= FAST_ENOUGH_MS:
            break
    return _picked(table, limit, target, count, len(sample_source))


def _candidates(dim: int) -> Iterator[tuple[type[IndexKind], dict[str, Any]]]:
    for kind in registered().values():
        for params in kind.candidates(dim):
            yield kind, params


def _measure(
    searchable: IndexKind,
    expected: ExactResults,
    params: dict[str, Any],
    bytes_needed: int,
    growth: float,
    target: float,
) -> list[IndexCandidate]:
    """Return a row for each search setting, from cheap to the first that reaches the target."""
    rows = []
    for settings in searchable.LADDER:
        reached = recall(searchable, expected, settings)
        elapsed = _median(searchable, expected.queries, settings)
        row = IndexCandidate(searchable.kind, params, bytes_needed / 1e6, dict(settings), round(reached, 4))
        row.sample_ms, row.projected_ms = round(elapsed, 4), round(elapsed * growth, 4)
        rows.append(row)
        if reached >= target:
            break
    return rows


def _median(searchable: IndexKind, queries: np.ndarray, settings: Mapping[str, int]) -> float:
    """Median milliseconds of a single query."""
    times: list[float] = []
    for query in queries[:_TIMED_QUERIES]:
        started = time.perf_counter()
        searchable.search(query[None], RECALL_DEPTH, settings=settings)
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times))


def _picked(
    table: list[IndexCandidate], limit: int | None, target: float, count: int, sample: int
) -> dict[str, Any]:
    """Return the fastest candidate that reaches the target; if several are similar, the first (simplest)."""
    measured = [row for row in table if row.recall is not None]
    if not measured:
        smallest = min(table, key=lambda row: row.megabytes)
        raise IndexingError(
            f"No kind of index fits into {(limit or 0) / 1e6:.0f} MB; the smallest, {smallest.kind}, needs "
            f"{smallest.megabytes:.0f} MB for {count} vectors. Allow more memory, or encode fewer dimensions."
        )
    reaching = [row for row in measured if (row.recall or 0) >= target]
    if reaching:
        fastest = min(row.projected_ms or 0 for row in reaching)
        best = next(
            row
            for row in reaching
            if (row.projected_ms or 0) <= max(fastest * _SIMILAR_TIME_RATIO, FAST_ENOUGH_MS / 5)
        )
        reason = "is the fastest"
        if kind_of(best.kind).EXACT and (best.projected_ms or 0) <= FAST_ENOUGH_MS:
            reason = "is fast enough and misses nothing"
        elif (best.projected_ms or 0) > fastest:
            reason = "is the simplest of the fastest"
    else:
        best = max(measured, key=lambda row: (row.recall or 0, -(row.projected_ms or 0)))
        reason = f"comes nearest to recall@{RECALL_DEPTH} {target}, which none reaches"
    best.note = "chosen"
    memory = "any memory" if limit is None else f"{limit / 1e6:.0f} MB"
    why = (
        f"{best.kind} {reason}: recall@{RECALL_DEPTH} {best.recall} (target {target}) and {best.sample_ms} "
        f"ms a query on {sample} of {count} vectors, about {best.projected_ms} ms on all; "
        f"{best.megabytes:.0f} MB of {memory}"
    )
    return {
        "kind": best.kind,
        "params": best.params,
        "search": best.search,
        "why": why,
        "target": target,
        "limit": limit,
        "measured": [asdict(row) for row in table],
    }


def table_lines(measured: list[dict[str, Any]]) -> list[str]:
    """Return the measurements as lines of text."""
    lines = [f"{'kind':8} {'build':30} {'search':28} {'MB':>8} {'recall@10':>9} {'ms':>9} {'ms, all':>9}"]
    for row in measured:
        build, search = (
            " ".join(f"{name}={value}" for name, value in row[part].items()) for part in ("params", "search")
        )
        figures = [
            "-" if row[name] is None else f"{row[name]:.3f}"
            for name in ("recall", "sample_ms", "projected_ms")
        ]
        lines.append(
            f"{row['kind']:8} {build:30} {search:28} {row['megabytes']:8.0f} {figures[0]:>9} {figures[1]:>9} "
            f"{figures[2]:>9}  {row['note']}".rstrip()
        )
    return lines
