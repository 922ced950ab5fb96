"""One model in a run: what was saved before is used again, the rest is evaluated and saved."""

from __future__ import annotations

import copy
import math
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.options import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mteb.abstasks.abstask import AbsTask
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

    from medteb_mteb.report.table import ScoreEntry
    from medteb_mteb.run.run import RunOutcome, RunSettings


@dataclass
class Runner:
    """One model in a run.

    Attributes:
        settings: Options of the run.
        cache: Results in mteb's layout.
        meta: The model's metadata.
        label: Name in the table.
        outcome: Receives errors and tasks that are left out.
        optional: Names of tasks that may be left out.
        model: The model; None until it is needed, False if it cannot be loaded.
    """

    settings: RunSettings
    cache: ResultCache
    meta: ModelMeta
    label: str
    outcome: RunOutcome
    optional: frozenset[str]
    model: Any = None

    def entries(self, tasks: Sequence[AbsTask]) -> list[ScoreEntry]:
        """Return the scores on all tasks, saved ones reused; a failure does not stop the others."""
        entries = []
        for task in tasks:
            name = task.metadata.name
            try:
                result = self._saved(task)
                if result is not None:
                    self._say(f"{name}: {result.get_score():.4f} (saved before)")
                elif self.model is False:  # only what is saved can be shown
                    continue
                else:
                    fresh = _fresh(task)
                    if not self._loaded(fresh):
                        self._say(f"{name}: left out, see below")
                        continue
                    if not self._ready():
                        continue
                    result = self._evaluated(fresh)
                entries.append(self._entry(task, result))
            except Exception as error:  # one failing task must not lose the others
                self.outcome.errors.append(f"{self.label} on {name}: {_one_line(error)}")
                self._say(f"{name}: failed, see below")
        return entries

    def _ready(self) -> bool:
        """Load the model if it is not."""
        from medteb_mteb.abstasks import finite  # lazy: mteb

        if self.model is None:
            try:
                self.model = finite(self.meta.load_model(device=self.settings.device))
            except Exception as error:  # its files may be damaged in many ways
                self.model = False
                self.outcome.errors.append(f"{self.label}: the model cannot be loaded: {_one_line(error)}")
        return self.model is not False

    def _say(self, text: str) -> None:
        say(f"{self.label}  {text}")

    def _path(self, kind: str, task: AbsTask, suffix: str = ".json") -> Path:
        """Return the path of a file about this model and task, beside mteb's result."""
        result = self.cache.get_task_result_path(task.metadata.name, self.meta)
        place = self.settings.output_folder / kind / result.relative_to(self.cache.cache_path / "results")
        return place.with_suffix(suffix)

    def _saved(self, task: AbsTask) -> TaskResult | None:
        """Return the saved result if it is complete, of the same data, and has the requested rankings."""
        name = task.metadata.name
        if self.settings.overwrite:
            return None
        try:
            saved = self.cache.load_task_result(name, self.meta)
        except Exception as error:  # which one depends on the damage
            self._say(f"{name}: the saved result is damaged ({_one_line(error)}); evaluating again")
            return None
        if saved is None or saved.get_missing_evaluations(task):
            return None
        # mteb reuses a complete result whatever data it was measured on.
        if saved.dataset_revision != task.metadata.revision:
            self._say(f"{name}: the saved result is of other data; evaluating again")
            return None
        saved = saved.validate_and_filter_scores(task)  # the file may hold further splits and subsets
        entries = [one for split in saved.scores.values() for one in split]
        scores = [one["main_score"] for one in entries]
        wanted = self.settings.trec and _is_ranking(task)
        lacking = wanted and not self._path("trec", task, ".trec").is_file()
        if lacking or not all(isinstance(one, int | float) and math.isfinite(one) for one in scores):
            self._say(f"{name}: the saved result is incomplete; evaluating again")
            return None
        # The task of a folder and the one of its name may have the same data, and another main score.
        if scores != [one.get(task.metadata.main_score, one["main_score"]) for one in entries]:
            self._say(f"{name}: the saved result has another main score; evaluating again")
            return None
        return saved

    def _evaluated(self, task: AbsTask) -> TaskResult:
        """Evaluate a loaded task and save everything about it."""
        from mteb.results import TaskResult  # lazy: mteb

        from medteb_mteb.report.scores import save_items  # lazy: scipy

        name = task.metadata.name
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=".predictions-", dir=self.settings.output_folder) as scratch:
            result = self._result(task, Path(scratch))
            save_items(self._path("items", task), task, Path(scratch), result.get_score())
            for suffix in (".trec", ".qrels"):  # of an earlier result, perhaps of other data
                self._path("trec", task, suffix).unlink(missing_ok=True)
            if self.settings.trec and _is_ranking(task):
                self._save_trec(task, Path(scratch) / task.prediction_file_name)
        # The result comes last: a task that has one is not evaluated again, so its other files must be there.
        kwargs: Any = {"batch_size": self.settings.batch_size}
        self.cache.save_to_cache(result, self.meta, encode_kwargs=kwargs)
        self._say(f"{name}: {result.get_score():.4f} ({time.monotonic() - started:.1f} s)")
        # The saved result is rounded; using it makes new and reused scores equal.
        return TaskResult.from_disk(self.cache.get_task_result_path(name, self.meta))

    def _loaded(self, task: AbsTask) -> bool:
        """Load a task's data; damaged data are an error, unavailable data leave an optional task out."""
        from medteb_mteb.abstasks import DataUnavailableError  # lazy: mteb

        name = task.metadata.name
        if name in self.outcome.left_out:
            return False
        try:
            task.load_data()
        except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
            damaged = isinstance(error, MarError) and not isinstance(error, DataUnavailableError)
            if damaged or name not in self.optional:
                raise
            self.outcome.left_out[name] = _one_line(error)
            return False
        return True

    def _result(self, task: AbsTask, predictions: Path) -> TaskResult:
        """Run one loaded task: mteb would unload data that it has loaded, and the items need them."""
        import mteb  # lazy: mteb

        bars = sys.stderr.isatty()
        outcome = mteb.evaluate(
            self.model,
            task,
            co2_tracker=False,
            cache=None,
            encode_kwargs={"batch_size": self.settings.batch_size, "show_progress_bar": bars},
            prediction_folder=predictions,
            show_progress_bar=bars,
        )
        if outcome.exceptions or not outcome.task_results:
            raise RuntimeError(
                outcome.exceptions[0].exception if outcome.exceptions else "mteb returned no result"
            )
        return outcome.task_results[0]

    def _save_trec(self, task: Any, predictions: Path) -> None:
        """Write the ranking of a split as a TREC run, and its judgements as TREC qrels."""
        from mar_st.data.trec import read_run, write_qrels, write_run  # lazy: pyarrow

        split, subset = task.eval_splits[0], task.hf_subsets[0]
        data = task.dataset[subset][split] if subset in task.dataset else task.dataset[split]
        tag = str(self.meta.name).replace("/", "__")
        path = self._path("trec", task, ".trec")
        write_run(path, read_run(predictions, split=split, subset=subset), tag)
        write_qrels(path.with_suffix(".qrels"), data["relevant_docs"])

    def _entry(self, task: AbsTask, result: TaskResult) -> ScoreEntry:
        from medteb_mteb.report.scores import result_entry  # lazy: scipy

        metric, items = task.metadata.main_score, self._path("items", task)
        return result_entry(result, self.label, str(self.meta.revision), metric, items)


def _is_ranking(task: AbsTask) -> bool:
    """Return True if the results are one ranking for each query."""
    single = len(task.eval_splits) == len(task.hf_subsets) == 1
    return single and task.metadata.type in ("Retrieval", "Reranking")


def _fresh(task: AbsTask) -> AbsTask:
    """Return a copy with its own random state, so that a score does not depend on earlier tasks."""
    import numpy as np  # lazy: numpy

    copied = copy.copy(task)
    copied.rng_state, copied.np_rng = random.Random(task.seed), np.random.default_rng(task.seed)
    return copied


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, ValueError | RuntimeError) else f"{type(error).__name__}: {text}"
