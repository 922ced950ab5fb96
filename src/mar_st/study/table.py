"""The table of a study, as numbers, as Markdown and as a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from mar_st.evaluation.resampling import p_value
from mar_st.evaluation.statistics import (
    bootstrap,
    difference,
    holm,
    mixed,
    randomised,
    rank_agreement,
    seed_variances,
)
from mar_st.files import write_json, write_text
from mar_st.study.plot import plot
from mar_st.study.schema import AVERAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mar_st.evaluation.statistics import Scores
    from mar_st.evaluation.tasks import TaskData
    from mar_st.study.schema import Published, Study

#: Percentiles of the 95 % interval.
_INTERVAL_PERCENTILES = (2.5, 97.5)


def make_table(
    study: Study,
    tasks: list[TaskData],
    values: Mapping[str, Mapping[str, list[list[float]]]],
    models: Mapping[str, Mapping[int, str]],
    costs: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return all numbers of a study, ready for JSON.

    Every row gets, for each task and for the mean over the tasks: the mean and the standard deviation over
    the seeds, a bootstrap interval over the queries, and the p-value of a paired randomisation test over the
    queries against the full model. The mean over tasks also gets a test in which seeds and queries are both
    random (`evaluation.statistics.mixed`), and its p-value adjusted for the number of rows, after Holm.

    Args:
        study: The study.
        tasks: Loaded tasks of the study.
        values: Row -> task -> one list of values per seed.
        models: Row -> seed -> digest of the model.
        costs: Row -> cost of its query encoder, see `mar_st.study.cost.query_cost`.
    """
    scores = {
        row.name: [data.scores(values[row.name][data.task.name]) for data in tasks] for row in study.rows
    }
    names = [data.task.name for data in tasks]
    full = scores[study.full]
    of_full = float(_per_seed(full).mean())
    averages = {name: _per_seed(of_row) for name, of_row in scores.items()}
    seeds = seed_variances(averages, {row.name for row in study.trained})
    drawn = {
        name: _drawn(study, of_row) for name, of_row in tqdm(scores.items(), desc="resampling", leave=False)
    }
    rows: list[dict[str, Any]] = []
    for row in tqdm(study.rows, desc="intervals and tests", leave=False):
        parts = _row(
            study, scores[row.name], full if row.name != study.full else None, names, drawn[row.name]
        )
        if row.name != study.full:
            gaps = np.mean(drawn[row.name], axis=0) - np.mean(drawn[study.full], axis=0)
            mixed_test = mixed(seeds[row.name], seeds[study.full], gaps)
            parts[AVERAGE] |= {
                "difference_low": mixed_test.low,
                "difference_high": mixed_test.high,
                "p_mixed": mixed_test.p,
            }
        cost = {key: value for key, value in costs.get(row.name, {}).items() if key != "model"}
        rows.append(
            {
                "name": row.name,
                "label": row.label or row.name,
                "group": row.group,
                "models": {str(seed): digest for seed, digest in models[row.name].items()},
                "scores": parts,
                "of_full": parts[AVERAGE]["mean"] / of_full if of_full else None,
                "cost": cost,
            }
        )
    tested = {row["name"]: row["scores"][AVERAGE]["p_mixed"] for row in rows if row["name"] != study.full}
    for name, p in holm(tested).items():
        next(row for row in rows if row["name"] == name)["scores"][AVERAGE]["p_holm"] = p
    return {
        "study": study.name,
        "description": study.description,
        "full": study.full,
        "seeds": list(study.seeds),
        "permutations": study.permutations,
        "resamples": study.resamples,
        "tasks": [
            {"name": d.task.name, "type": d.type, "metric": d.metric, "items": len(d.items), "data": d.digest}
            for d in tasks
        ],
        "rows": rows,
        "published": [_published(study, table, scores, names) for table in study.published],
    }


def _per_seed(scores: list[Scores]) -> Any:
    """Return the mean over the tasks for every seed."""
    return np.mean([task.per_seed() for task in scores], axis=0)


def _drawn(study: Study, scores: list[Scores]) -> list[Any]:
    """Return scores of every task on resampled items; all rows use the same items of a task."""
    return [
        bootstrap(task, resamples=study.resamples, seed=(study.test_seed, index, 0))
        for index, task in enumerate(scores)
    ]


def _row(
    study: Study, scores: list[Scores], full: list[Scores] | None, names: list[str], drawn: list[Any]
) -> dict[str, dict[str, Any]]:
    summaries = {}
    for index, (name, task) in enumerate(zip(names, scores, strict=True)):
        summaries[name] = _summary(task.per_seed(), drawn[index])
    summaries[AVERAGE] = _summary(_per_seed(scores), np.mean(drawn, axis=0))
    if full is None:
        return summaries
    gaps, nulls = _test(study, scores, full)
    for name, gap, null in zip(names, gaps, nulls, strict=True):
        summaries[name] |= {"difference": gap, "p": p_value(gap, null)}
    gap = float(np.mean(gaps))
    summaries[AVERAGE] |= {"difference": gap, "p": p_value(gap, np.mean(nulls, axis=0))}
    return summaries


def _test(study: Study, first: list[Scores], second: list[Scores]) -> tuple[list[float], list[Any]]:
    """Return the differences per task, and the differences under randomisation."""
    nulls = [
        randomised(a, b, permutations=study.permutations, seed=(study.test_seed, index, 1))
        for index, (a, b) in enumerate(zip(first, second, strict=True))
    ]
    return [difference(a, b) for a, b in zip(first, second, strict=True)], nulls


def _summary(per_seed: Any, drawn: Any) -> dict[str, Any]:
    low, high = np.percentile(drawn, _INTERVAL_PERCENTILES)
    return {
        "mean": float(per_seed.mean()),
        "std": float(per_seed.std(ddof=1)) if len(per_seed) > 1 else None,
        "low": float(low),
        "high": float(high),
        "seeds": [float(value) for value in per_seed],
    }


def _published(
    study: Study, table: Published, scores: Mapping[str, list[Scores]], names: list[str]
) -> dict[str, Any]:
    """Compare our order of the rows with a published one."""
    chosen = [names.index(table.task)] if table.task is not None else list(range(len(names)))
    kept = {name: [scores[name][index] for index in chosen] for name in table.scores}
    ours = {name: float(_per_seed(tasks).mean()) for name, tasks in kept.items()}
    tau, opposite = rank_agreement(ours, table.scores)
    pairs = []
    for higher, lower in opposite:
        gaps, nulls = _test(study, kept[higher], kept[lower])
        pairs.append(
            {
                "higher_here": higher,
                "higher_published": lower,
                "difference": float(np.mean(gaps)),
                "p": p_value(float(np.mean(gaps)), np.mean(nulls, axis=0)),
                "published_difference": table.scores[lower] - table.scores[higher],
            }
        )
    return {
        "name": table.name,
        "source": table.source,
        "task": table.task,
        "kendall_tau": tau,
        "rows": {name: {"here": ours[name], "published": table.scores[name]} for name in ours},
        "opposite_pairs": sorted(pairs, key=lambda pair: float(pair["p"])),
    }


# -- writing --


def write_table(
    table: Mapping[str, Any], timings: Mapping[str, Mapping[str, Any]], out: Path, say: Callable[[str], None]
) -> Path:
    """Write `table.json`, `table.md` and `table.png`, and separately `timings.json`.

    The first three are the same bytes whenever the study is run again on the same machine; timings are not.

    Returns:
        Path of `table.json`.
    """
    path = out / "table.json"
    write_json(path, table)
    write_json(out / "timings.json", timings)
    write_text(out / "table.md", markdown(table))
    write_text(out / "timings.md", timings_markdown(table, timings))
    try:
        plot(table, out / "table.png")
    except ImportError:
        say("table.png is left out: it needs matplotlib; pip install 'medteb[report]' and run this again")
    say(f"table: {out / 'table.md'}")
    return path


def markdown(table: Mapping[str, Any]) -> str:
    """Return the table for a page: a line per row, then the comparison with published numbers."""
    tasks = [task["name"] for task in table["tasks"]]
    published = table["published"]
    head = [
        "row",
        *(f"{task['name']} ({task['metric']})" for task in table["tasks"]),
        AVERAGE,
        "seeds",
        "of full",
        "difference",
        "p",
    ]
    head += ["query parameters", "MFLOP / query", *(entry["name"] for entry in published)]
    lines = [_line(head), _line(["---"] * len(head))]
    group = None
    for row in table["rows"]:
        if row["group"] != group and row["group"] is not None:
            lines.append(_line([f"*{row['group']}*", *[""] * (len(head) - 1)]))
        group = row["group"]
        lines.append(_line(_cells(table, row, tasks)))
    several = any(len(row["models"]) > 1 for row in table["rows"])
    spread = "mean ± standard deviation over the seeds" if several else "one seed"
    random = "seeds and queries both drawn at random" if several else "queries drawn at random"
    lines += [
        "",
        f"Scores: {spread}; in brackets the 95 % bootstrap interval over queries ({table['resamples']:,} "
        "resamples of the seed-averaged scores). Difference: of the average from that of "
        f"`{table['full']}`, with its 95 % interval, {random} (Welch's t-test; a trained row with one seed "
        "has the pooled variance of the others); p: of this test, two-sided, adjusted after Holm for the "
        "number of rows. Query parameters: all, and without token embeddings.",
    ]
    for entry in published:
        lines += ["", *_comparison(table, entry)]
    return "\n".join(lines) + "\n"


def _cells(table: Mapping[str, Any], row: Mapping[str, Any], tasks: list[str]) -> list[str]:
    scores, cost = row["scores"], row["cost"]
    is_full = row["name"] == table["full"]
    cells = [f"**{row['label']}**" if is_full else row["label"]]
    cells += [_score(scores[name]) for name in (*tasks, AVERAGE)]
    average = scores[AVERAGE]
    cells += [str(len(row["models"])), "undefined" if row["of_full"] is None else f"{row['of_full']:.1%}"]
    cells += ["", ""] if is_full else [_difference(average), _p(average["p_holm"])]
    if cost:
        sizes = (cost["parameters"] / 1e6, cost["parameters_without_embeddings"] / 1e6)
        cells += [f"{sizes[0]:,.2f}M ({sizes[1]:,.2f}M)", f"{cost['flops_per_query'] / 1e6:,.1f}"]
    else:
        cells += ["", ""]
    for entry in table["published"]:
        known = entry["rows"].get(row["name"])
        cells.append(f"{known['published']:g}" if known else "")
    return cells


def _score(score: Mapping[str, Any]) -> str:
    spread = "" if score["std"] is None else f" ± {score['std']:.4f}"
    return f"{score['mean']:.4f}{spread} [{score['low']:.4f}, {score['high']:.4f}]"


def _difference(score: Mapping[str, Any]) -> str:
    return f"{score['difference']:+.4f} [{score['difference_low']:+.4f}, {score['difference_high']:+.4f}]"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _comparison(table: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    label = {row["name"]: row["label"] for row in table["rows"]}
    tau = "undefined" if entry["kendall_tau"] is None else f"{entry['kendall_tau']:.2f}"
    what = entry["task"] or AVERAGE
    lines = [
        f"Beside {entry['name']} ({entry['source']}; {what} here): Kendall's tau {tau} over "
        f"{len(entry['rows'])} rows, {len(entry['opposite_pairs'])} pairs in opposite order."
    ]
    if entry["opposite_pairs"]:
        head = ["higher here", "higher there", "difference here", "p", "difference there"]
        lines += ["", _line(head), _line(["---"] * len(head))]
        for pair in entry["opposite_pairs"]:
            lines.append(
                _line(
                    [
                        label[pair["higher_here"]],
                        label[pair["higher_published"]],
                        f"{pair['difference']:.4f}",
                        _p(pair["p"]),
                        f"{pair['published_difference']:g}",
                    ]
                )
            )
    return lines


def timings_markdown(table: Mapping[str, Any], timings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the time per query of every row."""
    first = next(iter(timings.values()), {"device": "no device", "threads": 0})
    lines = [
        _line(["row", "ms / query (median)", "ms / query (95 %)"]),
        _line(["---"] * 3),
        *(
            _line(
                [
                    row["label"],
                    f"{timings[row['name']]['median_ms']:.2f}",
                    f"{timings[row['name']]['p95_ms']:.2f}",
                ]
            )
            for row in table["rows"]
            if row["name"] in timings
        ),
        "",
        f"Query encoder at batch 1, tokenisation included, on {first['device']} "
        f"({first['threads']} threads).",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    """Return a row of a Markdown table; a line break in a cell would end it."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
