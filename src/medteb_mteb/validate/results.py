"""Checks of results before they are submitted: what the repository of mteb's results sends back.

The points are those of the tests and reviews of https://github.com/embeddings-benchmark/results.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import mteb
from mteb.models import ModelMeta
from mteb.results import TaskResult
from packaging.version import InvalidVersion, Version

from mar_st.data.rows import read_rows
from mar_st.errors import MarError
from mar_st.files import counted, one_line, read_json, regular
from mar_st.text.values import as_number
from medteb_mteb.models.local import is_digest, reason_to_hold
from medteb_mteb.models.metas import MODELS
from medteb_mteb.report.page import Finding, Page, Table, worst
from medteb_mteb.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mteb.abstasks.abstask import AbsTask
    from mteb.cache import ResultCache

    from medteb_mteb.report.page import Verdict

META, SETTINGS = "model_meta.json", "run_settings.jsonl"
#: First version of mteb that writes the settings of runs, which the repository requires.
OLDEST_MTEB = Version("2.14.0")
PRIVATE, FILES, MODEL, STATED, MTEB_MODEL, MTEB_TASK, COMPLETE, DATA, VERSIONS, TRAINED = (
    "Nothing is private", "Files are complete", "Models have a name and a revision", "Models are described",
    "Models are mteb's", "Tasks are mteb's", "Scores are complete", "Data are the task's",
    "Versions of mteb agree", "Tasks are not in the training data",
)  # fmt: skip
#: What to do about the problems of each point, in the order of the page.
ADVICE = {
    PRIVATE: "they stay here",
    FILES: "run again with mteb 2.14 or newer, and keep the files that it writes together",
    MODEL: "publish the model and score it under its name there, at a commit",
    STATED: "state it in the model's ModelMeta, and run again",
    MTEB_MODEL: "add the model to mteb by a pull request, score mteb's implementation, and name both here",
    MTEB_TASK: "add the task to mteb by a pull request (contrib/mteb does), and name it in this one",
    COMPLETE: "run the task again; mteb adds what is missing",
    DATA: "run the task again on the revision that mteb names",
    VERSIONS: "reviewers ask for one recent version; run again if scores may depend on it",
    TRAINED: "such results are marked as not zero-shot, and must be disclosed",
}
_REVISION = re.compile(r"[0-9a-f]{40}|[0-9A-Za-z]")
_PATH = re.compile(r"(~|\.{0,2})[/\\]|[A-Za-z]:\\|file:")
#: Name that mteb gives a model without one.
_NO_NAME = "no_model_name/available"


class Problem(NamedTuple):
    """A problem of one result, or of all results of a model (`task` is empty)."""

    point: str
    verdict: Verdict
    model: str
    task: str
    reason: str


@dataclass
class Revision:
    """Results of one revision of a model.

    Attributes:
        folder: Folder of its files.
        meta: Its metadata; None if they cannot be read.
        results: The results that may be submitted, by task.
        settings: Lines of the settings of runs.
    """

    folder: Path
    meta: ModelMeta | None = None
    results: dict[str, TaskResult] = field(default_factory=dict)
    settings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the model's name, as the folder gives it."""
        return self.folder.parent.name.replace("__", "/")

    def trained_on(self) -> list[str]:
        """Return those of the tasks that are in the training data, as mteb sees them."""
        trained = self.meta.get_training_datasets() if self.meta is not None else None
        return sorted(self.results.keys() & (trained or set()))


@dataclass(frozen=True)
class Checked:
    """Results of a folder, checked.

    Attributes:
        revisions: What may be submitted; a revision without such results is left out.
        problems: What reviewers would ask about, and what is held back.
    """

    revisions: list[Revision]
    problems: list[Problem]

    def page(self, subject: str) -> Page:
        """Return the page of findings.

        Args:
            subject: What was looked at.
        """
        number = sum(len(one.results) for one in self.revisions)
        findings = [self._finding(point) for point in ADVICE]
        last = Finding("Submission", "ok" if number else "fail", f"{counted(number, 'result')} ready")
        return Page("Submission of results", subject, (*findings, last))

    def _finding(self, point: str) -> Finding:
        problems = [one for one in self.problems if one.point == point]
        if not problems:
            return Finding(point, "ok", "no problem")
        rows = tuple(_grouped(problems))
        reason = f"{counted(len(rows), 'problem')}: {ADVICE[point]}"
        table = Table(("model", "tasks", "verdict", "problem"), rows)
        return Finding(point, worst([one.verdict for one in problems]), reason, table=table)

    def open_questions(self) -> list[tuple[str, ...]]:
        """Return what a reviewer of the ready results would ask: model, tasks, verdict, problem."""
        ready = {(one.name, task) for one in self.revisions for task in ("", *one.results)}
        problems = [one for one in self.problems if one.point != PRIVATE and (one.model, one.task) in ready]
        return list(_grouped(problems))


def _grouped(problems: Sequence[Problem]) -> Iterator[tuple[str, ...]]:
    """Yield model, tasks, verdict and problem; tasks with the same problem of a model are in one."""
    tasks = defaultdict(list)
    for one in problems:
        tasks[one.model, one.verdict, one.reason].append(one.task or "all tasks")
    for (model, verdict, reason), names in tasks.items():
        yield model, ", ".join(names), verdict, reason


def check_results(cache: ResultCache, models: Sequence[str], tasks: Sequence[str]) -> Checked:
    """Check the results of a folder, as mteb or `medteb run` wrote them.

    Results that are private or that a test of the repository refuses are held back. A model without
    valid metadata or a revision is held back with all of its results.

    Args:
        cache: The folder.
        models: Names of models; all if empty.
        tasks: Names of tasks; all if empty.

    Raises:
        MarError: The folder holds no such results.
    """
    files = cache.get_cache_paths(
        models or None, tasks or None, require_model_meta=False, include_remote=False
    )
    if not files:
        wanted = f" of {', '.join([*models, *tasks])}" if models or tasks else ""
        raise MarError(
            f"{cache.cache_path} holds no results{wanted}. Expected results/MODEL/REVISION/TASK.json, as in "
            "the output folder of medteb run or mteb run."
        )
    copies = Counter((path.parent.parent.name, path.name) for path in files)
    by_folder = defaultdict(list)
    for path in sorted(files):
        by_folder[path.parent].append(path)
    revisions, problems = [], []
    for folder, paths in by_folder.items():
        revision = Revision(folder)
        found = list(_of_revision(revision, paths))
        found += [
            Problem(FILES, "fail", revision.name, task, "another revision of the model has the task, too")
            for task in revision.results
            if copies[folder.parent.name, f"{task}.json"] > 1
        ]
        held = {one.task for one in found if one.verdict == "fail"}
        kept = {} if "" in held else {t: one for t, one in revision.results.items() if t not in held}
        revision.results = kept
        revisions += [revision] if kept else []
        problems += found
    return Checked(revisions, problems)


def _of_revision(revision: Revision, paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield the problems of the results of one revision, and fill in what was read."""
    name, public = revision.name, []
    for path in paths:
        try:
            data = str(read_json(path)["dataset_revision"])
        except (ValueError, KeyError, TypeError):
            data = ""  # reported below
        if reason := reason_to_hold(name, path.stem, data):
            yield Problem(PRIVATE, "warning", name, path.stem, reason)
        else:
            public.append(path)
    if not public:
        return
    yield from (Problem(point, verdict, name, "", reason) for point, verdict, reason in _of_model(revision))
    covered: set[tuple[Any, Any, Any]] = set()
    for line in revision.settings:
        splits, subsets = (line.get(f"{key}s") or [line.get(key)] for key in ("split", "subset"))
        covered |= {(line.get("task"), split, subset) for split in splits for subset in subsets}
    for path in public:
        try:
            result = TaskResult.from_disk(regular(path))
        except Exception as error:  # what mteb raises depends on the damage
            yield Problem(FILES, "fail", name, path.stem, f"cannot be read: {one_line(error, 150)}")
            continue
        revision.results[path.stem] = result
        for point, verdict, reason in _of_result(result, mteb.get_task(path.stem), covered):
            yield Problem(point, verdict, name, path.stem, reason)
    trained = "the model's training data include the task or one made from the same data"
    yield from (Problem(TRAINED, "warning", name, task, trained) for task in revision.trained_on())
    versions = sorted({str(one.mteb_version) for one in revision.results.values()} | {version("mteb")})
    if len(versions) > 1:
        yield Problem(VERSIONS, "warning", name, "", f"results and installation: {', '.join(versions)}")


def _of_model(revision: Revision) -> Iterator[tuple[str, Verdict, str]]:
    """Yield point, verdict and problem of a model's metadata."""
    folder, path = revision.folder, revision.folder / SETTINGS
    try:
        revision.settings = list(read_rows(path, lambda row: dict(row.values))) if path.is_file() else []
        text = regular(folder / META).read_text(encoding="utf-8")
        meta = revision.meta = ModelMeta.model_validate_json_resolved(text)
    except Exception as error:  # missing, damaged or of another mteb: many types
        yield FILES, "fail", f"metadata or settings cannot be read: {one_line(error, 150)}"
        return
    stated, theirs = json.loads(text), _of_mteb().get(revision.name)
    if (
        _NO_NAME in str(meta.name)
        or (meta.name or "/").replace("/", "__").replace(" ", "_") != folder.parent.name
    ):
        yield MODEL, "fail", f"{META} names the model {meta.name}"
    if str(meta.revision) != folder.name:
        yield MODEL, "fail", f"{META} names the revision {meta.revision}, the folder {folder.name}"
    if not _REVISION.fullmatch(folder.name) and (theirs is None or theirs.revision != folder.name):
        yield MODEL, "fail", f"{folder.name} is not a revision: expected a commit, or a number for an API"
    if paths := [key for key, value in _texts((stated, revision.settings)) if _PATH.match(value)]:
        yield FILES, "fail", f"{', '.join(sorted(set(paths)))}: a path of this machine"
    if gaps := _gaps(meta):
        # mteb has accepted the model without them.
        yield STATED, "fail" if theirs is None else "warning", f"not stated: {', '.join(gaps)}"
    if theirs is None:
        yield MTEB_MODEL, "warning", "mteb has no implementation"
        return
    registered = json.loads(json.dumps(theirs.to_dict(), default=str))
    known = {key: value for key, value in registered.items() if value not in (None, [], {}) and key in stated}
    others = [key for key, value in known.items() if _sorted(value) != _sorted(stated[key])]
    if others == ["revision"]:
        yield MTEB_MODEL, "warning", f"mteb names the revision {theirs.revision}"
    elif others:
        yield MTEB_MODEL, "fail", f"{META} differs from mteb's metadata in {', '.join(others)}"


@cache
def _of_mteb() -> dict[str, ModelMeta]:
    """Return the models that mteb has without this package, by name."""
    ours = {meta.name for meta in MODELS}
    return {str(meta.name): meta for meta in mteb.get_model_metas() if meta.name not in ours}


def _gaps(meta: ModelMeta) -> list[str]:
    """Return the names of what a reviewer asks for and the metadata do not state."""
    closed, lexical = meta.open_weights is False, meta.n_parameters == 0
    needed = {
        "number of parameters": closed or meta.n_parameters is not None,
        "memory": closed or lexical or meta.memory_usage_mb is not None,
        "licence": closed or meta.license is not None,
        "framework": lexical or bool(meta.framework),
        "training data": meta.training_datasets is not None,
    }
    return [name for name, stated in needed.items() if not stated]


def _sorted(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else value


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts of JSON values with the key that they are under."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _texts(one, str(name))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, key)
    elif isinstance(value, str):
        yield key, value


def _of_result(result: TaskResult, task: AbsTask, covered: set[Any]) -> Iterator[tuple[str, Verdict, str]]:
    """Yield point, verdict and problem of one result.

    Args:
        result: The result.
        task: The task that the file is named after.
        covered: Task, split and subset whose settings are recorded.
    """
    name = task.metadata.name
    if result.task_name != name:
        yield FILES, "fail", f"the file holds a result of {result.task_name}"
        return
    if type(task) in TASKS:
        yield MTEB_TASK, "warning", "mteb has no such task"
    missing = result.get_missing_evaluations(task)
    if task.is_aggregate:  # its scores are of one subset, whatever its parts have
        missing = {split: ["default"] for split in missing if split not in result.scores}
    if missing:
        shown = "; ".join(f"{split}: {', '.join(sorted(subsets))}" for split, subsets in missing.items())
        yield COMPLETE, "fail", f"missing subsets of splits: {shown}"
    entries = [(split, one) for split, scores in result.scores.items() for one in scores]
    undefined = [f"{s}, {one['hf_subset']}" for s, one in entries if as_number(one["main_score"]) is None]
    if undefined:
        yield COMPLETE, "fail", f"main score that is not a number: {'; '.join(undefined)}"
    if any(
        key not in ("hf_subset", "languages", "mteb_version") for _, one in entries for key, _ in _texts(one)
    ):
        yield FILES, "fail", "the scores hold texts"
    # A digest is that of a packaged edition here: all others are private.
    if not is_digest(result.dataset_revision) and result.dataset_revision != task.metadata.revision:
        yield DATA, "fail", f"measured on {result.dataset_revision}, the task names {task.metadata.revision}"
    if old := sorted({str(one.get("mteb_version")) for _, one in entries if not _is_recent(one)}):
        yield FILES, "fail", f"measured with mteb {', '.join(old)}; expected {OLDEST_MTEB} or newer"
    elif uncovered := [s for s, one in entries if (name, s, one["hf_subset"]) not in covered]:
        yield FILES, "fail", f"{SETTINGS} has no line about the splits {', '.join(sorted(set(uncovered)))}"


def _is_recent(scores: Any) -> bool:
    try:
        return Version(str(scores.get("mteb_version"))) >= OLDEST_MTEB
    except InvalidVersion:
        return False
