"""Figures: means by source, time against effectiveness, maps of labelled texts, similarities of pairs."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from mar_st.files.figures import drawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.report.saved import TimedScore
    from medteb_mteb.report.vectors import LabelMap, Similarities

__all__ = ["draw_label_map", "draw_similarities", "draw_sources", "draw_time"]

_BINS = 50


def draw_sources(means: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw means by model (rows) and source (columns) as a table of colours with numbers.

    Args:
        means: Mean by source, by model; missing values are left empty.
        path: PNG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    sources = sorted({source for row in means.values() for source in row})
    with drawn(path, 2.6 + 0.85 * len(sources), 1.4 + 0.32 * len(means)) as figure:
        axes = figure.subplots()
        cells = [[row.get(source, float("nan")) for source in sources] for row in means.values()]
        axes.imshow(cells, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        for y, row in enumerate(cells):
            for x, value in enumerate(row):
                shown = "" if isnan(value) else f"{value:.2f}"
                axes.text(
                    x, y, shown, ha="center", va="center", fontsize=8, color="w" if value < 0.6 else "k"
                )
        axes.set_xticks(range(len(sources)), [*map(_plain, sources)], rotation=40, ha="right", fontsize=8)
        axes.set_yticks(range(len(means)), [*map(_plain, means)], fontsize=8)
        axes.set_title("mean score by source", fontsize=10)


def draw_time(times: Mapping[str, TimedScore], path: Path) -> None:
    """Draw the mean score of every model over its mean time.

    Args:
        times: Result of `medteb_mteb.report.saved.against_time`.
        path: PNG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with drawn(path, 7, 4.5) as figure:
        axes = figure.subplots()
        for number, (model, one) in enumerate(times.items()):
            axes.plot(one.seconds, one.score, "o", color=f"C{number % 10}")
            axes.annotate(
                _plain(model), (one.seconds, one.score), (5, 4), textcoords="offset points", fontsize=8
            )
        axes.set_xscale("log")
        axes.set_xlabel("mean seconds per task")
        axes.set_ylabel(f"mean score over {max(one.tasks for one in times.values())} tasks")
        axes.margins(x=0.25)
        axes.grid(alpha=0.3)


def draw_label_map(label_map: LabelMap, title: str, path: Path) -> None:
    """Draw texts in two dimensions, coloured by label.

    Args:
        label_map: Result of `medteb_mteb.report.vectors.label_map`.
        title: Title of the figure.
        path: PNG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with drawn(path, 7, 5.5) as figure:
        axes = figure.subplots()
        names = sorted(set(label_map.labels))
        for number, label in enumerate(names):
            places = [i for i, one in enumerate(label_map.labels) if one == label]
            axes.plot(*label_map.points[places].T, ".", color=f"C{number % 10}", markersize=4)
        # Given explicitly, since matplotlib leaves labels that begin with "_" out of its own legends.
        axes.legend(axes.get_lines(), [_plain(label[:40]) for label in names], fontsize=7, markerscale=2)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(f"{_plain(title)}, t-SNE with perplexity {label_map.perplexity:.0f}", fontsize=9)


def draw_similarities(similarities: Mapping[str, Similarities], title: str, path: Path) -> None:
    """Draw, a panel per model, how similar positives and other documents are to their queries.

    Args:
        similarities: Similarities by model.
        title: Title of the figure.
        path: PNG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with drawn(path, 7, 0.6 + 2 * len(similarities)) as figure:
        panels: Sequence[Any] = figure.subplots(len(similarities), 1, squeeze=False)[:, 0]
        for axes, (model, one) in zip(panels, similarities.items(), strict=True):
            low = min(one.positives.min(), one.negatives.min())
            high = max(one.positives.max(), one.negatives.max())
            for values, label in ((one.positives, "positives"), (one.negatives, "other documents")):
                axes.hist(values, bins=_BINS, range=(low, high), density=True, alpha=0.6, label=label)
            axes.set_title(
                f"{_plain(model)}: a positive is nearer with probability {one.auc():.3f}", fontsize=9
            )
            axes.set_ylabel("density", fontsize=8)
        panels[0].legend(fontsize=8)
        panels[-1].set_xlabel("similarity of query and document")
        figure.suptitle(_plain(title), fontsize=10)


def _plain(text: str) -> str:
    """Return a text so that matplotlib draws its dollar signs instead of reading a formula between them."""
    return text.replace("$", r"\$")
