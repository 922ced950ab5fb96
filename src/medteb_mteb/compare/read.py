"""Reads results: of `medteb run` and mteb, rankings (TREC, BEIR) with qrels, and files of HAKARI-Bench."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.data.trec import is_run, read_qrels, read_run
from mar_st.errors import MarError
from mar_st.files import JsonError, read_json, read_record, regular, sha256
from mar_st.options import say
from medteb_mteb.measures import Judged, score_queries
from medteb_mteb.report.intervals import MeanSample
from medteb_mteb.report.scores import result_entry
from medteb_mteb.report.table import ResultTable, ScoreEntry, labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from medteb_mteb.folders.content import TaskFolder

_META = "model_meta.json"
#: Largest difference between HAKARI's score and the one of the ranking in the same file.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Results:
    """Results of several systems.

    Attributes:
        table: The scores; systems with the most tasks first, then by their mean; tasks by name.
        folders: Data of tasks, by task, where they are at hand.
    """

    table: ResultTable
    folders: dict[str, TaskFolder] = field(default_factory=dict)


def read_results(sources: Sequence[Path], *, data: Sequence[Path] = (), qrels: Path | None = None) -> Results:
    """Read the results of several sources as one table.

    Args:
        sources: Folders of `medteb run` or mteb (`model/revision/task.json`), of HAKARI-Bench or of
            rankings; or single rankings: TREC's format or JSON, as `read_run` reads them.
        data: Data folders of tasks, or live editions. Packaged tasks need none.
        qrels: Judgements for rankings; default: those of the only data folder.

    Raises:
        MarError: A source holds no results, a file is malformed, or the judgements of rankings are missing.
    """
    from medteb_mteb.folders.content import read_folder  # lazy: pyarrow
    from medteb_mteb.folders.live import data_folders  # lazy: yaml

    given = [read_folder(folder) for folder in data_folders(data)]
    folders = {folder.layout.name: folder for folder in given}
    judgements = cache(partial(_judgements, qrels, [one for one in given if one.retrieval is not None]))
    found: list[ScoreEntry] = []
    for source in sources:
        some = list(_read(source, judgements))
        if not some:
            raise MarError(
                f"{source} holds no results. Expected the output folder of medteb run or mteb run "
                f"(with {_META}), result files of HAKARI-Bench, or rankings *.trec, *.run or *.json."
            )
        found += some
    names = labels(_versions(found))
    entries: dict[tuple[str, str], ScoreEntry] = {}
    for one, label in zip(found, names, strict=True):
        key = (label, one.task)
        if key in entries and entries[key].score != one.score:
            raise MarError(f"{label} has two results on {one.task}; give one of the two sources.")
        entries[key] = replace(one, model=label)
    tasks = sorted({task for _, task in entries})
    table = ResultTable(_best_first(entries.values()), tasks, list(entries.values()))
    folders |= {task: folder for task in tasks if task not in folders and (folder := _packaged(task))}
    return Results(table, folders)


def _versions(found: Sequence[ScoreEntry]) -> list[tuple[str, str]]:
    """Return name and revision of each result.

    A ranking is another file for every task, so its digest counts only if a task has two of its name.
    """
    rankings = {(one.model, one.task, one.model_revision) for one in found if one.model.startswith("run/")}
    files = Counter((model, task) for model, task, _ in rankings)
    single = {model for model, _ in files} - {model for (model, _), number in files.items() if number > 1}
    return [(one.model, "" if one.model in single else one.model_revision) for one in found]


def _best_first(entries: Iterable[ScoreEntry]) -> list[str]:
    scores = defaultdict(list)
    for entry in entries:
        scores[entry.model].append(entry.score)
    return sorted(scores, key=lambda model: (-len(scores[model]), -fmean(scores[model]), model))


def _packaged(task: str) -> TaskFolder | None:
    """Return the data of a task of ours that is on this machine."""
    from medteb_mteb.editions import find_edition  # lazy: yaml
    from medteb_mteb.folders.content import read_folder  # lazy: pyarrow

    try:
        return read_folder(find_edition(task).path)
    except MarError:  # no task of ours, or without data here
        return None


def _judgements(
    file: Path | None, folders: Sequence[TaskFolder]
) -> tuple[str, str, dict[str, dict[str, int]], Judged]:
    """Return what rankings are scored with: name of the task, revision of the data, qrels, judgements."""
    if file is not None:
        return file.stem, sha256(file)[:16], read_qrels(file), Judged()
    if len(folders) == 1 and (content := folders[0].retrieval) is not None:
        return folders[0].layout.name, folders[0].revision, content.qrels, folders[0].judged
    raise MarError("Rankings need their judgements: give --qrels FILE, or one --data FOLDER.")


def _read(source: Path, judgements: Callable[[], Any]) -> Iterator[ScoreEntry]:
    if not source.exists():
        raise MarError(f"There is no {source}.")
    if source.is_file():
        yield from _file(source, judgements)
        return
    metas = sorted(source.absolute().rglob(_META))
    for meta in metas:
        yield from _mteb_model(meta)
    if not metas:
        for file in sorted(path for path in source.rglob("*") if path.is_file() and is_run(path)):
            yield from _file(file, judgements)


def _file(path: Path, judgements: Callable[[], Any]) -> Iterator[ScoreEntry]:
    if not is_run(path):
        raise MarError(f"{path} is not a ranking; expected *.trec, *.run or *.json.")
    content = _hakari(path) if path.suffix.lower() == ".json" else None
    if content is not None:
        yield content
        return
    run = read_run(path)
    task, revision, qrels, judged = judgements()
    scores = score_queries(qrels, judged, run)
    if not scores:
        raise MarError(f"{path}: no query has a positive judgement.")
    ids = tuple(sorted(scores))
    values = np.array([scores[query].ndcg for query in ids])
    yield ScoreEntry(
        model=path.stem,
        model_revision=sha256(path)[:16],
        task=task,
        metric="ndcg_at_10",
        score=float(values.mean()),
        dataset_revision=revision,
        sample=MeanSample(values),
        ids=ids,
        ranking=path,
    )


def _mteb_model(meta: Path) -> Iterator[ScoreEntry]:
    """Read the results of one model and revision in mteb's layout."""
    from mteb.results import TaskResult  # lazy: mteb

    facts = read_record(meta) or {}
    revision_folder = meta.parent
    name = str(facts.get("name") or revision_folder.parent.name.replace("__", "/"))
    revision = str(facts.get("revision") or revision_folder.name)
    if revision_folder.parent.name == "experiments":  # of mteb, such as `embed_dim_32`: another system
        name = f"{name} {revision_folder.name}"
    for path in sorted(revision_folder.glob("*.json")):
        if path.name == _META:
            continue
        try:
            result = TaskResult.from_disk(regular(path))
            metric, result = _of_known_task(result)
            if not math.isfinite(result.get_score()):
                raise ValueError("the score is not a finite number")
        except Exception as error:  # what mteb raises depends on the damage
            say(f"{path}: left out, not a result of mteb ({error})")
            continue
        place = path.relative_to(revision_folder.parents[1]).with_suffix("")
        beside = revision_folder.parents[2]
        ranking = beside / "trec" / place.with_suffix(".trec")
        items = beside / "items" / place.with_suffix(".json")
        # Of the task of a folder, which mteb does not know, only the items name the main score.
        metric = metric or str((read_record(items) or {}).get("metric", "main_score"))
        entry = result_entry(result, name, revision, metric, items)
        ranked = ranking if ranking.is_file() else None
        yield replace(entry, ranking=ranked, facts=facts, version=result.mteb_version or "")


def _of_known_task(result: Any) -> tuple[str, Any]:
    """Return the name of the main score, and the result without splits that the task does not evaluate.

    The name of an unknown task's main score is empty.
    """
    task = _known_task(result.task_name)
    if task is None:
        return "", result
    return task.metadata.main_score, result.validate_and_filter_scores(task)


@cache
def _known_task(name: str) -> Any:
    """Return mteb's task, or None; mteb takes long to find names like an unknown one."""
    import mteb  # lazy: mteb

    try:
        return mteb.get_task(name)
    except KeyError:
        return None


def _hakari(path: Path) -> ScoreEntry | None:
    """Return a result file of HAKARI-Bench; None for another JSON file."""
    try:
        content = read_json(regular(path))
    except (JsonError, json.JSONDecodeError):
        return None  # read_run says what is wrong
    if not isinstance(content, dict) or not {"model", "target", "evaluation"} <= content.keys():
        return None
    try:
        model, target, evaluation = content["model"], content["target"], content["evaluation"]
        name, task = str(model["id"]), str(target["task_name"])
        metric = str(evaluation["aggregate_metric"]).lower().replace("@", "_at_")
        score = float(evaluation["aggregate_metric_value"])
        artifact = (content.get("artifacts") or {}).get("top_rankings") or {}
        relevant = {
            row["query_id"]: dict.fromkeys(row["relevant_corpus_ids"], 1) for row in artifact.get("qrels", ())
        }
        rankings: dict[Any, dict[str, dict[str, float]]] = defaultdict(dict)
        for row in artifact.get("rankings", ()):
            ranked = row["corpus_ids"]
            rankings[row.get("name"), row.get("ranking_kind"), row.get("embedding_variant_name")][
                row["query_id"]
            ] = {document: float(len(ranked) - rank) for rank, document in enumerate(ranked)}
    except (KeyError, TypeError, ValueError) as error:
        raise MarError(f"{path} is not a result of HAKARI-Bench as it seems ({error!r}).") from error
    entry = ScoreEntry(
        model=name,
        model_revision=str((model.get("source") or {}).get("revision") or ""),
        task=task,
        metric=metric,
        score=score,
        dataset_revision=str(target.get("dataset_revision") or target.get("dataset_id") or ""),
        note="the file holds no ranking that gives its score",
    )
    for run in rankings.values():  # also rankings of variants, such as shorter vectors
        values = {query: one.ndcg for query, one in score_queries(relevant, Judged(), run).items()}
        ids = tuple(sorted(values))
        sample = MeanSample(np.array([values[query] for query in ids]))
        if metric == "ndcg_at_10" and ids and abs(float(sample.values.mean()) - score) <= _TOLERANCE:
            entry = replace(entry, sample=sample, ids=ids, note="")
            break
    return entry
