"""Tasks that may read a folder of this machine, and retrieval whose data say what was judged."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import (
    CrossEncoderProtocol,
    EncoderProtocol,
    SearchCrossEncoderWrapper,
    SearchEncoderWrapper,
    SearchProtocol,
)
from mteb.timing import TimingStack
from pydantic import PrivateAttr

from mar_st.errors import MarError
from mar_st.files import one_line
from medteb_mteb.editions import DATA_VARIABLE, STATISTICS
from medteb_mteb.measures import HOLES, Judged, means, score_queries, without_disputed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from mteb.models import ModelMeta
    from mteb.types import RetrievalOutputType

UNREADABLE = "unreadable-local-data"


class DataUnavailableError(MarError):
    """The data of a task are neither on this machine nor on the Hub."""


class LocalMetadata(TaskMetadata):
    """Metadata of a task with data in a folder: the statistics are `descriptive_stats/<revision>.json` there.

    mteb stores statistics in its own package, by the task's name only, so those of one edition would be shown
    for all others.
    """

    _folder: Path = PrivateAttr(default=Path())

    @classmethod
    def in_folder(cls, folder: Path, content: dict[str, Any]) -> Self:
        """Return metadata from its fields.

        Raises:
            ValueError: mteb does not accept a field.
        """
        metadata = cls.model_validate(content)
        metadata._folder = folder
        return metadata

    @property
    def descriptive_stat_path(self) -> Path:
        """Return the path of the statistics of this revision of the data."""
        return self._folder / STATISTICS / f"{self.revision}.json"


class LocalTask(AbsTask):
    """A task that reads a folder of this machine if there is one; put it before mteb's class in the bases.

    The folder is looked up when the task is constructed, and the digest of its data is the dataset revision,
    so scores on different data never mix. A folder that cannot be used is reported by `load_data`: mteb
    constructs every task only to list them.

    Attributes:
        folder: Folder of the data; None for data of the Hub.
    """

    revision_matters = True  # see `medteb_mteb.plugin`
    folder: Path | None = None

    def __init__(self, **kwargs: Any) -> None:
        self._problem: Exception | None = None
        base = getattr(self, "base_metadata", type(self).metadata)
        try:
            self.folder = self.find()
            if self.folder is not None:
                self.metadata = self._described(base, self.folder)
        except (ValueError, OSError) as error:
            self._problem = error
            unreadable = {"dataset": {**base.dataset, "revision": UNREADABLE}}
            self.metadata = LocalMetadata.in_folder(Path(), base.model_dump() | unreadable)
        self._own_metadata = self.metadata
        super().__init__(**kwargs)

    @property
    def copy_name(self) -> str:
        """Return the name of the data's folder in `$MEDTEB_DATA`: the task's."""
        return str(type(self).metadata.name)

    def find(self) -> Path | None:
        """Return the folder of the data, by default `$MEDTEB_DATA/<copy name>`; None for the Hub."""
        return type(self).folder or copy_of(self.copy_name)

    def describe(self, folder: Path) -> dict[str, Any]:
        """Return the fields of the metadata that depend on the data; `revision` is one of them."""
        raise NotImplementedError

    def read(self, folder: Path) -> None:
        """Check the data of a folder and take them."""
        raise NotImplementedError

    def fetch(self, num_proc: int | None, **kwargs: Any) -> None:
        """Load the data from the Hub, as mteb does."""
        super().load_data(num_proc, **kwargs)

    def _described(self, base: TaskMetadata, folder: Path) -> LocalMetadata:
        fields = self.describe(folder)
        dataset = {**base.dataset, "revision": fields.pop("revision")}
        return LocalMetadata.in_folder(folder, base.model_dump() | {"dataset": dataset} | fields)

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Read the folder, or fetch the data.

        Raises:
            DataUnavailableError: There is no folder and the data could not be fetched.
            MarError: The folder has problems, or changed after the task was created.
        """
        if self.data_loaded:
            return
        if self._problem is not None:
            raise self._problem
        if self.folder is None:
            try:
                self.fetch(num_proc, timer=timer, **kwargs)
            except MarError:
                raise
            except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
                raise self._unavailable(error) from error
        else:
            with (timer or TimingStack())("Data loading", log_message=f"Loading {self.folder}..."):
                if self.describe(self.folder)["revision"] != self.metadata.revision:
                    raise MarError(
                        f"{self.folder}: the data changed after the task was created; create it again."
                    )
                self.read(self.folder)
        self.data_loaded = True

    def _unavailable(self, error: Exception) -> DataUnavailableError:
        hub, root = self.metadata.dataset["path"], os.environ.get(DATA_VARIABLE)
        where = f"{root}/" if root else f"a folder that {DATA_VARIABLE} names, as "
        return DataUnavailableError(
            f"The data of {self.metadata.name} could not be fetched from the Hub ({hub}): "
            f"{type(error).__name__}: {one_line(error)}. On a machine with access run `hf download "
            f"--repo-type dataset {hub} --local-dir {self.copy_name}`, and put the copy at "
            f"{where}{self.copy_name}/."
        )

    def unload_data(self) -> None:
        """Drop the data and restore the task's metadata (mteb would fall back on those of its class)."""
        super().unload_data()
        self.metadata = self._own_metadata

    def evaluate(self, model: Any, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Evaluate a model; see mteb.

        Raises:
            MarError: The model returns NaN or infinite values.
        """
        return super().evaluate(finite(model), *args, **kwargs)


def copy_of(name: str) -> Path | None:
    """Return `$MEDTEB_DATA/<name>` if there is such a folder.

    Args:
        name: Name of the folder.
    """
    root = os.environ.get(DATA_VARIABLE)
    folder = Path(root).expanduser().absolute() / name if root else None
    return folder if folder is not None and folder.is_dir() else None


def finite(model: Any) -> Any:
    """Return a model that raises `MarError` where it would return NaN or infinite values.

    Args:
        model: A model as mteb evaluates it: an encoder, a cross-encoder or a search model.
    """
    if isinstance(model, SearchProtocol) and not isinstance(model, EncoderProtocol | CrossEncoderProtocol):
        return model
    checked = copy.copy(model)
    for name in ("encode", "predict"):
        method = getattr(type(model), name, None)
        if callable(method):
            setattr(checked, name, _Finite(method, checked))
    return checked


class _Finite:
    def __init__(self, method: Any, model: Any) -> None:
        self.method, self.model = method, model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self.method(self.model, *args, **kwargs)
        array = values.detach().float().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
        if not np.isfinite(array).all():
            name = getattr(getattr(self.model, "mteb_model_meta", None), "name", type(self.model).__name__)
            raise MarError(
                f"{name} returns NaN or infinite values, so its scores would mean nothing. Load it in "
                "float32 or bfloat16, or check its weights."
            )
        return values


class JudgedRetrieval(AbsTaskRetrieval):
    """mteb's retrieval with `judged_at_10`, `bpref` and `condensed_ndcg_at_10` if the data allow it.

    Attributes:
        judged: Pairs that were judged; `load_into` sets it.
    """

    judged: Judged = Judged()

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],
        qrels: Any,
        results: dict[str, dict[str, float]],
        hf_split: str,
        hf_subset: str,
    ) -> dict[str, float]:
        """Return scores of `medteb_mteb.measures`; none if the judged negatives are unknown."""
        mteb_scores = super().task_specific_scores(scores, qrels, results, hf_split, hf_subset)
        if not self.judged.known:
            return mteb_scores
        own = means(score_queries(qrels, self.judged, results).values())
        values = zip(HOLES, (own.judged, own.condensed, own.bpref), strict=True)
        return mteb_scores | {name: value for name, value in values if value is not None}

    def _evaluate_subset(self, model: Any, data_split: Any, **kwargs: Any) -> Any:
        if any(self.judged.disputed.values()):
            model = _WithoutDisputed(model, self.judged)
        return super()._evaluate_subset(model, data_split, **kwargs)


class _WithoutDisputed:
    """A model whose rankings lack the documents that the judges disagree on.

    The ranking itself is cut, so that every evaluator that reads the saved run gives the same score.
    """

    def __init__(self, model: Any, judged: Judged) -> None:
        self._judged = judged
        if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
            model = SearchEncoderWrapper(model)
        elif isinstance(model, CrossEncoderProtocol):
            model = SearchCrossEncoderWrapper(model)
        self._model = model

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Return the metadata of the model."""
        meta: ModelMeta = self._model.mteb_model_meta
        return meta

    def index(self, *args: Any, **kwargs: Any) -> None:
        """Index the corpus with the model."""
        self._model.index(*args, **kwargs)

    def search(self, *args: Any, **kwargs: Any) -> RetrievalOutputType:
        """Search with the model and remove the disputed documents of each query."""
        return without_disputed(self._model.search(*args, **kwargs), self._judged)
