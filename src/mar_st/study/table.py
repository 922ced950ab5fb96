"""The table of a study, as numbers and as Markdown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.evaluation.statistics import bootstrap, holm, mixed, seed_variances
from mar_st.text.texts import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mar_st.evaluation.tasks import TaskData
    from mar_st.study.grid import Study

#: Name of the column with the mean over the tasks.
AVERAGE = "average"

#: Resamples of the bootstrap, and the percentiles of its 95 % interval.
RESAMPLES, INTERVAL = 10_000, (2.5, 97.5)


def make_table(
    study: Study, tasks: list[TaskData], values: Mapping[tuple[str, int], Mapping[str, list[float]]]
) -> dict[str, Any]:
    """Return all numbers of a study, ready for JSON.

    Every row gets, for each task and for the mean over the tasks: the mean and the standard deviation over
    the seeds, and a bootstrap interval over the queries. The mean over tasks also gets its difference from
    the full model, with an interval and a p-value of a test in which seeds and queries are both random
    (`evaluation.statistics.mixed`), adjusted for the number of rows after Holm.

    Args:
        study: The study.
        tasks: Loaded tasks of the study.
        values: Row and seed -> task -> value of every item.
    """
    draws = _draws(tasks)
    drawn: dict[str, list[Any]] = {}
    per_seed: dict[str, list[Any]] = {}
    for row in study.rows:
        models = [of_model for (name, _), of_model in values.items() if name == row.name]
        scores = [task.scores([of_model[task.task.name] for of_model in models]) for task in tasks]
        drawn[row.name] = [
            bootstrap(
                replace(
                    task, values=task.values[:, order], gold=None if task.gold is None else task.gold[order]
                ),
                resamples=RESAMPLES,
                seed=(0, draw, 0),
            )
            for task, (draw, order) in zip(scores, draws, strict=True)
        ]
        per_seed[row.name] = [task.per_seed() for task in scores]
        drawn[row.name].append(np.mean(drawn[row.name], axis=0))
        per_seed[row.name].append(np.mean(per_seed[row.name], axis=0))
    trained = {row.name for row in study.rows if row.model is None}
    seeds = seed_variances({name: scores[-1] for name, scores in per_seed.items()}, trained)
    full = study.full
    tests = {
        name: mixed(seeds[name], seeds[full], drawn[name][-1] - drawn[full][-1])
        for name in drawn
        if name != full
    }
    adjusted = holm({name: test.p for name, test in tests.items()})
    names = [*(task.task.name for task in tasks), AVERAGE]
    rows = []
    for row in study.rows:
        parts = zip(names, per_seed[row.name], drawn[row.name], strict=True)
        content: dict[str, Any] = {
            "name": row.name,
            "label": row.label or row.name,
            "group": row.group,
            "scores": {name: _summary(*numbers) for name, *numbers in parts},
        }
        if row.name in tests:
            test = tests[row.name]
            content |= {"difference": test.difference, "low": test.low, "high": test.high}
            content["p"] = adjusted[row.name]
        rows.append(content)
    return {
        "study": study.name,
        "description": study.description,
        "full": full,
        "seeds": list(study.seeds),
        "tasks": [
            {"name": one.task.name, "metric": one.metric, "items": len(one.items), "data": one.digest}
            for one in tasks
        ],
        "rows": rows,
    }


def _draws(tasks: list[TaskData]) -> list[tuple[int, np.ndarray]]:
    """Return for each task the number of its draws, and the order of its items for them.

    Tasks with the same questions get the same draws, with their items in the order of the texts: their scores
    depend on each other, and the interval of their mean has to show it.
    """
    numbers: dict[tuple[str, ...], int] = {}
    draws = []
    for index, task in enumerate(tasks):
        texts = [normalise(text) for text in task.queries.values() or (first for first, _ in task.pairs)]
        draws.append((numbers.setdefault(tuple(sorted(texts)), index), np.argsort(texts, kind="stable")))
    return draws


def _summary(per_seed: Any, drawn: Any) -> dict[str, Any]:
    low, high = np.percentile(drawn, INTERVAL)
    return {
        "mean": float(per_seed.mean()),
        "std": float(per_seed.std(ddof=1)) if len(per_seed) > 1 else None,
        "low": float(low),
        "high": float(high),
        "seeds": [float(value) for value in per_seed],
    }


def as_markdown(table: Mapping[str, Any]) -> str:
    """Return the table for a page: a line per row, in groups."""
    names = [*(task["name"] for task in table["tasks"]), AVERAGE]
    head = ["row", *(f"{task['name']} ({task['metric']})" for task in table["tasks"]), AVERAGE]
    head += ["seeds", "difference", "p"]
    lines = [_line(head), _line(["---"] * len(head))]
    group = None
    for row in table["rows"]:
        if row["group"] not in (group, None):
            lines.append(_line([f"*{row['group']}*", *[""] * (len(head) - 1)]))
        group = row["group"]
        cells = [f"**{row['label']}**" if row["name"] == table["full"] else row["label"]]
        for score in (row["scores"][name] for name in names):
            spread = "" if score["std"] is None else f" ± {score['std']:.4f}"
            cells.append(f"{score['mean']:.4f}{spread} [{score['low']:.4f}, {score['high']:.4f}]")
        cells.append(str(len(row["scores"][AVERAGE]["seeds"])))
        if "p" in row:
            cells.append(f"{row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]")
            cells.append("< 0.001" if row["p"] < 0.001 else f"{row['p']:.3f}")
        else:
            cells += ["", ""]
        lines.append(_line(cells))
    lines += [
        "",
        "Scores: mean ± standard deviation over the seeds; in brackets the 95 % bootstrap interval over "
        f"queries ({RESAMPLES:,} resamples of the seed-averaged scores). Difference: of the average from "
        f"that of `{table['full']}`, with its 95 % interval, seeds and queries drawn at random (Welch's "
        "t-test; a trained row with one seed has the pooled variance of the others); p: of this test, "
        "two-sided, adjusted after Holm for the number of rows.",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    """Return a row of a Markdown table; a line break in a cell would end it."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
