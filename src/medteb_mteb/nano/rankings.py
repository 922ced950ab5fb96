"""Rankings of a Nano task, kept with its qrels so that scores can be computed again without model or data."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import finished
from medteb_mteb.nano.measures import ListScores, score_rankings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["SUFFIX", "KeptRankings", "RankingsError", "read_rankings", "write_rankings"]

SUFFIX = ".rankings.json.gz"
_FORM = "medteb-rankings-1"


class RankingsError(MarError):
    """Saved rankings cannot be read."""


@dataclass(frozen=True)
class KeptRankings:
    """Rankings of one model on one task.

    Attributes:
        task: Name of the task.
        model: Name of the model.
        dataset_revision: Revision of the data.
        qrels: Positive documents by query.
        rankings: The first 100 documents by query, best first.
    """

    task: str
    model: str
    dataset_revision: str
    qrels: Mapping[str, Sequence[str]]
    rankings: Mapping[str, Sequence[str]]

    def scores(self) -> ListScores:
        """Return the scores of the rankings; see `medteb_mteb.nano.measures`."""
        return score_rankings(self.rankings, self.qrels)


def write_rankings(path: Path, kept: KeptRankings) -> None:
    """Write saved rankings as compressed JSON; the same rankings always give the same bytes."""
    content = {
        "form": _FORM,
        "task": kept.task,
        "model": kept.model,
        "dataset_revision": kept.dataset_revision,
        "qrels": {query: list(documents) for query, documents in kept.qrels.items()},
        "rankings": {query: list(documents) for query, documents in kept.rankings.items()},
    }
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with finished(path) as part:
        part.write_bytes(gzip.compress(data, mtime=0))


def read_rankings(path: Path) -> KeptRankings:
    """Read saved rankings.

    Raises:
        RankingsError: The file is missing or has another format.
    """
    try:
        content: Any = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise RankingsError(
            f"{path}: expected rankings kept by `medteb run`, which end in {SUFFIX}; {error}"
        ) from None
    if not isinstance(content, dict) or content.get("form") != _FORM:
        raise RankingsError(f"{path}: expected rankings kept by `medteb run` ({_FORM}), got another file.")
    try:
        return KeptRankings(
            task=str(content["task"]),
            model=str(content["model"]),
            dataset_revision=str(content["dataset_revision"]),
            qrels=_lists(content["qrels"]),
            rankings=_lists(content["rankings"]),
        )
    except (KeyError, TypeError) as error:
        raise RankingsError(
            f"{path}: damaged rankings; {error} is missing or of another type. Run the evaluation again."
        ) from None


def _lists(content: Any) -> dict[str, list[str]]:
    if not isinstance(content, dict) or not all(isinstance(one, list) for one in content.values()):
        raise TypeError("a table of documents by query")
    return {str(query): [str(one) for one in documents] for query, documents in content.items()}
