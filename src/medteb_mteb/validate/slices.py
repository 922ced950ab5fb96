"""Does a score hold for short and for long queries?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medteb_mteb.curation.labels.intervals import interval
from medteb_mteb.measures import means
from medteb_mteb.report.intervals import MeanSample
from medteb_mteb.validate.findings import Finding, Table

if TYPE_CHECKING:
    from medteb_mteb.validate.findings import Number
    from medteb_mteb.validate.material import Material

__all__ = ["FEWEST", "slices"]

PARTS = 3
#: Queries of a slice below which its score says little.
FEWEST = 50


def slices(material: Material) -> Finding:
    """Scores by the length of the query, in thirds; queries of one length stay together."""
    key, title = "slices", "Scores hold for short and long queries"
    lengths = {row["id"]: len(row["text"]) for row in material.data.queries if row["id"] in material.qrels}
    if not lengths or not material.scores:
        return Finding(key, title, "not known", "no query has a positive")
    bounds = np.quantile(list(lengths.values()), np.arange(1, PARTS) / PARTS)
    parts: dict[int, list[str]] = {}
    for query, length in lengths.items():
        parts.setdefault(int(np.searchsorted(bounds, length)), []).append(query)
    known = material.data.judged.known
    rows = []
    numbers: dict[str, Number] = {}
    for name, scores in material.scores.items():
        for _, queries in sorted(parts.items()):
            found = [scores[query] for query in queries]
            mean = means(found)
            low, high = interval(MeanSample(np.array([one.ndcg for one in found])))
            here = [lengths[query] for query in queries]
            label = f"{min(here)} to {max(here)} characters"
            numbers[f"{name}, {label}, nDCG@10"] = round(mean.ndcg, 4)
            share = f"{mean.judged:.1%}" if known and mean.judged is not None else "not known"
            score = f"{mean.ndcg:.4f} [{low:.4f}, {high:.4f}]"
            rows.append((name, label, str(len(queries)), score, share))
    table = Table(("run", "queries of", "queries", "nDCG@10 [95 %]", "judged@10"), tuple(rows))
    fewest = min(map(len, parts.values()))
    numbers["queries of the smallest slice"] = fewest
    reason = f"{len(parts)} slices by query length, the smallest of {fewest} queries"
    if fewest < FEWEST:
        return Finding(key, title, "warning", f"{reason}: too few to compare slices", numbers, table)
    return Finding(key, title, "ok", reason, numbers, table)
