"""A cross-encoder with thresholds, which returns labels instead of scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files.digests import entry_of
from mar_st.files.reading import read_json
from mar_st.graded.thresholds import Thresholds
from mar_st.model.reranker import Reranker

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["THRESHOLDS_FILE", "Grader"]

#: File of the thresholds, beside the weights.
THRESHOLDS_FILE = "thresholds.json"


class Grader:
    """Labels pairs; the weights are loaded on first use.

    Args:
        folder: A folder that `mar cross-encoder` wrote.
        batch_size: Pairs per forward pass.

    Raises:
        MarError: The folder does not exist, or it has no valid thresholds.
    """

    def __init__(self, folder: str | Path, *, batch_size: int = 32) -> None:
        self.folder = Path(folder)
        file = self.folder / THRESHOLDS_FILE
        if not file.is_file():
            raise MarError(
                f"{self.folder} holds no {THRESHOLDS_FILE}. Give a folder that 'mar cross-encoder' wrote; a "
                "cross-encoder without thresholds has scores, but no grades."
            )
        try:
            content = read_json(file)
            labels, bounds = content["labels"], content["bounds"]
            if any(isinstance(one, bool) or not isinstance(one, int) for one in labels):
                raise TypeError("labels are whole numbers")
            self.thresholds = Thresholds(tuple(labels), tuple(map(float, bounds)))
        except (KeyError, TypeError, ValueError) as error:
            raise MarError(f"{file}: {error!r} is not what 'mar cross-encoder' writes.") from error
        self._reranker = Reranker(str(self.folder), batch_size=batch_size)

    def identity(self) -> dict[str, str]:
        """Return digests of all that the labels depend on: weights, settings, tokenizer and thresholds."""
        files = [*self.folder.glob("*.safetensors"), *self.folder.glob("*.json")]
        return {file.name: entry_of(file)["sha256"] for file in sorted(files)}

    def scores(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return the scores of (query, document) pairs, shape (pairs,), float32."""
        return self._reranker.score(pairs)

    def label(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.int64]:
        """Return the labels of (query, document) pairs, shape (pairs,), int64."""
        return self.thresholds.label(self.scores(pairs))
