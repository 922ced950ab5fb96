"""The plot of a study: a line per row with its interval, and the cost of its query encoder."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from mar_st.files.figures import drawn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Characters of a label on one line.
LABEL_WIDTH = 40


def plot(table: Mapping[str, Any], path: Path) -> None:
    """Draw the average of every row with its 95 % interval beside the operations of its query encoder.

    Args:
        table: Table from `mar_st.study.table.make_table`.
        path: PNG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    rows = list(reversed(table["rows"]))
    labels = [textwrap.fill(row["label"], LABEL_WIDTH) for row in rows]
    heights, top = [], 0.0
    for label in labels:  # a row is as high as its label
        half = (1 + label.count("\n") / 2) / 2
        heights.append(top + half)
        top += 2 * half
    with drawn(path, 9, 1.2 + 0.32 * top) as figure:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
        groups = list(dict.fromkeys(row["group"] for row in table["rows"]))
        for height, row in zip(heights, rows, strict=True):
            score = row["scores"]["average"]
            color = f"C{groups.index(row['group']) % 10}"
            error = [[score["mean"] - score["low"]], [score["high"] - score["mean"]]]
            left.errorbar(score["mean"], height, xerr=error, fmt="o", color=color, capsize=3)
            left.plot(score["seeds"], [height] * len(score["seeds"]), "|", color=color, alpha=0.6)
            right.barh(height, row["cost"].get("flops_per_query", 0) / 1e6, color=color, alpha=0.7)
            if row["name"] == table["full"]:
                left.axvline(score["mean"], color=color, linewidth=0.8, linestyle=":")
        left.set_yticks(heights, labels)
        left.set_xlabel("average over the tasks, 95 % interval; strokes: seeds")
        right.set_xlabel("MFLOP per query")
        for axes in (left, right):
            axes.grid(axis="x", alpha=0.3)
