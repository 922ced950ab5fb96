"""The table of `benchmarks/peers.py`, and the best engine of each column."""

from __future__ import annotations

from typing import Any

#: Columns in which engines are ranked: heading, key of a result, and whether more is better.
RANKED_COLUMNS = (
    ("p50 ms", "p50_ms", False),
    ("p95 ms", "p95_ms", False),
    ("q/s", "per_second", True),
    ("RSS MiB", "rss_mib", False),
    ("peak MiB", "peak_mib", False),
    ("files MiB", "model_mib", False),
    ("nDCG@10", "ndcg@10", True),
)


def table(settings: dict[str, Any], results: list[dict[str, Any]], notes: dict[str, str], loss: float) -> str:
    """Return the run as Markdown.

    Args:
        settings: `machine`, `threads`, `callers`, `queries`, `documents` and `task` of the run.
        results: Of each engine, the baseline first.
        notes: Why an engine has no result, by its name.
        loss: nDCG@10 that an engine may lose to the baseline and still count as equally accurate.
    """
    lines = [
        f"{settings['machine']}; {settings['threads']} threads, {settings['callers']} callers; "
        f"{settings['queries']} queries and {settings['documents']} documents of {settings['task']}.",
        "",
        "| engine | p50 ms | p95 ms | times faster | q/s | times as many | RSS MiB | peak MiB | files MiB "
        "| cosine mean | least | nDCG@10 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(result) for result in results]
    lines += [f"| {name} | {note.replace('|', '/')} |{' |' * 10}" for name, note in notes.items()]
    return "\n".join([*lines, "", *firsts(results, loss), ""])


def _line(result: dict[str, Any]) -> str:
    cells = [
        result["name"], _number(result["p50_ms"]), _number(result["p95_ms"]), _ratio(result, "times_faster"),
        _number(result["per_second"]), _ratio(result, "times_as_many"), f"{result['rss_mib']:.0f}",
        f"{result['peak_mib']:.0f}", _number(result["model_mib"]), f"{result['cosine_mean']:.4f}",
        f"{result['cosine_min']:.4f}", f"{result['ndcg@10']:.4f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _ratio(result: dict[str, Any], key: str) -> str:
    """A ratio to the baseline with its range over the turns."""
    if key not in result:
        return "1"
    low, high = result[f"{key}_range"]
    return f"{_number(result[key])} ({_number(low)}-{_number(high)})"


def firsts(results: list[dict[str, Any]], loss: float) -> list[str]:
    """Say who is first in each column: of all, and of those as accurate as the baseline, the first result."""
    if not results:
        return []
    least = results[0]["ndcg@10"] - loss
    equal = [result for result in results if result["ndcg@10"] >= least]
    lines = [
        f"| first in | of all {len(results)} | of the {len(equal)} with nDCG@10 of {least:.4f} or more, "
        f"the baseline's less {loss:g} |",
        "|---|---|---|",
    ]
    return lines + [
        f"| {heading} | {_best(results, key, more)} | {_best(equal, key, more)} |"
        for heading, key, more in RANKED_COLUMNS
    ]


def _best(results: list[dict[str, Any]], key: str, more: bool) -> str:
    best = (max if more else min)(result[key] for result in results)
    return ", ".join(result["name"] for result in results if result[key] == best)
