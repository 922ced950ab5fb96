"""`.npy` files: any array, tables of token embeddings, weights, rows that were deleted."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from mar_st.files.arrays import load_array
from mar_st.index.errors import IndexingError
from mar_st.index.segment import _rows
from mar_st.online.front import BigramTable, EmbeddingTable
from mar_st.online.listing import BIGRAM_FILES
from mar_st.online.protocol import EncoderError
from mar_st.online.runtimes.native import _weights
from mar_st.teachers.vectors import Part, StoreError
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path

_PREFIX = b"\x93NUMPY\x01\x00"


def _file(array: np.ndarray) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=True)
    return sink.getvalue()


def prepare(folder: Path) -> Target:
    """Set up the target: `.npy` files."""
    path = folder / "a.npy"

    def check(data: bytes) -> str:
        kind, content = data[:1], data[1:]
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        if kind == b"t":
            table = EmbeddingTable(path)
            rows = table[np.array([0, min(3, table.rows - 1), table.rows - 1])]
            assert rows.dtype == np.float32
            return "table"
        if kind == b"b":
            path.replace(folder / BIGRAM_FILES[0])
            embeddings = np.zeros((4, 4), dtype=np.float32)
            table_of_pairs = BigramTable(folder, 4)
            table_of_pairs.add(embeddings, np.array([0, 5, 5, 0]), np.array([0, 0, 0, -1]))
            return f"pairs {bool(embeddings.any())}"
        if kind == b"w":
            return f"weights {len(_weights(path)[-1:])}"
        if kind == b"d":
            return f"deleted {len(_rows(path, 3, 9)) == 3}"
        if kind == b"p":
            part = Part.npy(path)
            return f"vectors {part.open()[:1].shape[0]}"
        loaded, mapped = load_array(path), load_array(path, mapped=True)
        assert loaded.shape == mapped.shape
        return f"array {loaded.dtype.kind}"

    floats = np.arange(24, dtype=np.float32).reshape(6, 4)
    for name in BIGRAM_FILES[1:]:
        np.save(folder / name, floats[:3])
    arrays = [
        floats, floats.astype(np.float16), np.asfortranarray(floats), np.arange(640, dtype=np.uint8),
        np.array([1, 4, 7]), np.array(["a", "bb"]), np.zeros((0, 4), np.float32), np.float32(3),
        np.zeros(3, dtype=[("a", "<i4"), ("b", "S5")]), np.array([{"a": 1}], dtype=object),
    ]  # fmt: skip
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"
    shapes = [
        b"2**70, 1",
        b"-1,",
        b"1" * 30 + b",",
        b"(" * 500,
        b"6, 4, ",
        b"True,",
        b"'6', 4",
        b"99999999999, 4",
    ]
    made = [
        _PREFIX + len(text).to_bytes(2, "little") + text + floats.tobytes()
        for text in (header % shape for shape in shapes)
    ]
    contents = [_file(array) for array in arrays] + made
    return Target(
        [kind + content for content in contents for kind in (b"a", b"t", b"b", b"w", b"d", b"p")],
        check,
        (ValueError, OSError, EncoderError, IndexingError, StoreError),
        words=(
            b"'<f4'",
            b"'|O'",
            b"'>f8'",
            b"'<U999999999'",
            b"True",
            b"shape",
            b"(",
            b")",
            b",",
            b"\x02\x00",
            b"\x03\x00",
        ),
    )
