"""Keys of texts, by which their vectors are found in folders of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mar_st.encode.folder import text_digests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.encode import VectorFolder

#: Type of a text's key: the first 16 bytes of its sha256, as folders of vectors keep it.
KEY = np.dtype("S16")


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """Return the keys of texts, `(len(texts),)` of type `S16`."""
    return np.frombuffer(b"".join(text_digests(texts)), dtype=KEY)


class KeyIndex:
    """Places of keys in a list of keys; for equal keys, the first place.

    Args:
        keys: Keys, `(n,)` of type `S16`.
    """

    def __init__(self, keys: np.ndarray) -> None:
        self._sorted, self._first = np.unique(keys, return_index=True)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the place of each key, `(len(keys),)` int64; -1 if there is none."""
        if not len(self._sorted):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._first[places], -1)


def folder_keys(folder: VectorFolder) -> np.ndarray:
    """Return the keys of the texts of a folder, `(n,)` of type `S16`."""
    chunks = folder.text_digests.chunks
    parts = [
        np.frombuffer(chunk.buffers()[1], KEY)[chunk.offset : chunk.offset + len(chunk)] for chunk in chunks
    ]
    return np.concatenate([np.empty(0, KEY), *parts])
