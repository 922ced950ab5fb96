"""The approximate index: an inverted file of FAISS that looks at a few of its lists only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from medteb_mteb.curation.diversify.centres import Centres
from medteb_mteb.curation.diversify.vectors import KeptVectors, Pairs, import_faiss, similarities
from medteb_mteb.curation.files.records import BuildError

if TYPE_CHECKING:
    import torch

    from medteb_mteb.curation.diversify.rule import SelectionRule

__all__ = ["Inverted"]

#: Upper bound of the error of half precision in the lists, for similarities of vectors of length 1.
HALF_PRECISION_ERROR = 0.005


class Inverted:
    """Compares with the kept vectors of the lists whose centres are nearest.

    The vectors that it finds are compared exactly, so it can only overlook neighbours: it keeps what an exact
    search of the same index would drop, never the other way round.

    Args:
        rule: The rule.
        kept: The kept vectors; every vector added to it must also be added to the index.
        centres: One vector of length 1 per list, `(lists, dim)` float32.
        probes: Number of lists to search.
        dtype: Data type of the products that find the nearest centres; default the faster one.

    Raises:
        BuildError: The centres have another width than the vectors, or FAISS is not installed.
    """

    def __init__(
        self,
        rule: SelectionRule,
        kept: KeptVectors,
        centres: np.ndarray,
        probes: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        faiss = import_faiss()
        if centres.shape[1] != kept.dim:
            raise BuildError(
                f"The centres of the lists have {centres.shape[1]} dimensions and the vectors {kept.dim}. "
                "Delete the file of centres and run the command again."
            )
        self.rule, self.kept = rule, kept
        self.centres, self.probes = Centres(centres, dtype), min(probes, len(centres))
        # FAISS requires a quantizer; it is not used, because `centres` assigns the lists.
        self._quantizer = faiss.IndexFlatIP(kept.dim)
        self._quantizer.add(centres)
        half = faiss.ScalarQuantizer.QT_fp16
        self._index: Any = faiss.IndexIVFScalarQuantizer(
            self._quantizer, kept.dim, len(centres), half, faiss.METRIC_INNER_PRODUCT, False
        )
        self._index.is_trained = True  # scalar quantization to fp16 needs no training
        self._index.nprobe = self.probes
        self._pointer = faiss.swig_ptr

    def add(self, vectors: np.ndarray) -> None:
        """Add kept vectors of length 1, `(n, dim)` float32."""
        lists = np.ascontiguousarray(self.centres.nearest(vectors)[:, 0])
        self._index.add_core(len(vectors), self._pointer(vectors), None, self._pointer(lists))

    def above(self, vectors: np.ndarray, *, all_of_them: bool = True) -> Pairs:
        """Return kept vectors above the threshold for vectors of length 1; the search may miss some.

        Args:
            vectors: `(m, dim)` float32.
            all_of_them: No effect: at most `k` are found, all with their similarities.
        """
        del all_of_them
        lists = self.centres.nearest(vectors, self.probes)
        unused = np.zeros(lists.shape, dtype=np.float32)  # FAISS reads these only if it encodes residuals
        scores, numbers = self._index.search_preassigned(vectors, self.rule.k, lists, unused)
        left, place = np.nonzero((numbers >= 0) & (scores > self.rule.limit - HALF_PRECISION_ERROR))
        right = numbers[left, place]
        similarity = similarities(vectors, left, self.kept, right)
        above = similarity > self.rule.limit
        return Pairs(left[above], right[above], similarity[above])
