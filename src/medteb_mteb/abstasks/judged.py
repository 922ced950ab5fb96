"""Retrieval tasks whose data say which pairs were judged: disputed pairs are left out, holes are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.models import (
    CrossEncoderProtocol,
    EncoderProtocol,
    SearchCrossEncoderWrapper,
    SearchEncoderWrapper,
    SearchProtocol,
)

from medteb_mteb.measures.judged import Judged
from medteb_mteb.measures.rankings import means, score_queries, without_disputed

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.types import RetrievalOutputType

__all__ = ["JudgedRetrieval"]


class JudgedRetrieval(AbsTaskRetrieval):
    """mteb's retrieval with `judged_at_10`, `bpref` and `condensed_ndcg_at_10` if the data allow it.

    Attributes:
        judged: Pairs that were judged; `load_into` sets it.
    """

    judged: Judged = Judged()
    #: Scores beside the main one in the results of a task whose judged negatives are known.
    JUDGED_SCORES: ClassVar[tuple[str, ...]] = ("judged_at_10", "bpref", "condensed_ndcg_at_10")

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],
        qrels: Any,
        results: dict[str, dict[str, float]],
        hf_split: str,
        hf_subset: str,
    ) -> dict[str, float]:
        """Return scores of `medteb_mteb.measures.rankings`; none if the judged negatives are unknown."""
        mteb_scores = super().task_specific_scores(scores, qrels, results, hf_split, hf_subset)
        if not self.judged.known:
            return mteb_scores
        own = means(score_queries(qrels, self.judged, results).values()).to_json()
        return mteb_scores | {name: value for name in self.JUDGED_SCORES if (value := own[name]) is not None}

    def _evaluate_subset(self, model: Any, data_split: Any, **kwargs: Any) -> Any:
        if any(self.judged.disputed.values()):
            model = _WithoutDisputed(model, self.judged)
        return super()._evaluate_subset(model, data_split, **kwargs)


class _WithoutDisputed:
    """A model whose rankings lack the documents that the judges disagree on.

    The ranking itself is cut, before it is saved or scored, so that every evaluator that reads the saved run
    gives the same score.
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
