"""Vectors that were written are read back, in every form; damage is found."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mar_st.encode.folder import VectorFolder, shard_file, text_digests, write_shard, write_vectors
from mar_st.errors import MarError

if TYPE_CHECKING:
    from pathlib import Path

#: Largest error of a value by form.
TOLERANCE = {"float32": 0.0, "float16": 5e-4}


def vectors(number: int = 50, dim: int = 16) -> np.ndarray:
    drawn = np.random.default_rng(0).standard_normal((number, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def ids(number: int = 50) -> list[str]:
    return [f"文{i}" for i in range(number)]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_written_vectors_are_read_back(tmp_path: Path, dtype: Any) -> None:
    written = write_vectors(tmp_path / "v", ids(), vectors(), dtype=dtype, model="m", shard=7, space="s")
    folder = VectorFolder.open(tmp_path / "v")

    assert (len(folder), folder.dim, folder.dtype, folder.space) == (50, 16, dtype, "s")
    assert folder.normalised
    assert folder.ids.to_pylist() == ids()
    assert folder.manifest == written.manifest
    loaded = folder[:]
    assert loaded.dtype == np.float32
    np.testing.assert_allclose(loaded, vectors(), atol=TOLERANCE[dtype] * np.abs(vectors()).max(), rtol=0)
    np.testing.assert_array_equal(folder[[49, 0, -1, 8]], loaded[[49, 0, 49, 8]])
    np.testing.assert_array_equal(folder[5:33], loaded[5:33])
    np.testing.assert_array_equal(folder[40:2:-9], loaded[40:2:-9])
    np.testing.assert_array_equal(folder[13], loaded[13])
    np.testing.assert_array_equal(folder[np.arange(50) % 3 == 0], loaded[::3])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(folder))[3], loaded[3])
    folder.verify()
    for rows in ([50], [-51], [0.5], np.ones(49, dtype=bool)):
        with pytest.raises(IndexError):
            folder[rows]


def test_text_digests_and_lengths_are_kept(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(50)]
    folder = write_vectors(tmp_path / "v", ids(), 3 * vectors(), texts=texts, similarity="dot")
    assert folder.text_digests.to_pylist() == text_digests(texts)
    assert (folder.normalised, folder.similarity) == (False, "dot")


def test_what_is_no_set_of_vectors_is_refused(tmp_path: Path) -> None:
    bad = vectors()
    bad[3, 2] = np.nan
    large = vectors()
    large[4] *= 1e6
    refused: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((ids(49), vectors()), {}, "one vector"),
        ((["a"] * 50, vectors()), {}, "repeat"),
        ((ids(), bad), {}, "Vector 3 holds NaN"),
        ((ids(), large), {"dtype": "float16"}, "Vector 4 holds"),
        ((["\ud800", *ids(49)], vectors()), {}, "surrogate"),
        ((ids(), vectors()), {"texts": ["\ud800"] * 50}, "surrogate"),
        ((ids(), vectors()), {"dtype": "int4"}, "stored as"),
    ]
    for place, (given, options, message) in enumerate(refused):
        with pytest.raises(MarError, match=message):
            write_vectors(tmp_path / str(place), *given, **options)
    write_vectors(tmp_path / "v", ids(), vectors())
    with pytest.raises(MarError, match="holds vectors already"):
        write_vectors(tmp_path / "v", ids(), vectors())


def test_damage_is_found_when_a_shard_is_read_or_verified(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v", ids(), vectors(), shard=20)
    path = shard_file(tmp_path / "v", 1)
    whole = path.read_bytes()
    value = vectors()[39, -1].tobytes()

    for damaged in (whole[:-50], b"\xff" * 100):
        path.write_bytes(damaged)
        with pytest.raises(MarError, match="damaged"):
            VectorFolder.open(tmp_path / "v")[30]
    path.write_bytes(whole.replace(value, np.float32(np.inf).tobytes()))
    assert VectorFolder.open(tmp_path / "v")[3].shape == (16,)  # of another shard
    with pytest.raises(MarError, match="NaN or infinite"):
        VectorFolder.open(tmp_path / "v")[30]
    path.write_bytes(whole.replace(value, np.float32(0.1).tobytes()))
    with pytest.raises(MarError, match="not the file"):
        VectorFolder.open(tmp_path / "v").verify()
    for number, dim in ((3, 16), (20, 8)):
        write_shard(tmp_path / "v", 1, ids(number), [bytes(16)] * number, vectors(number, dim), "float32")
        with pytest.raises(MarError, match="other vectors"):
            VectorFolder.open(tmp_path / "v")[30]
    path.unlink()
    with pytest.raises(MarError, match="missing"):
        VectorFolder.open(tmp_path / "v")[30]


def test_folders_without_a_valid_manifest_are_refused(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v", ids(), vectors())
    manifest = tmp_path / "v" / "manifest.json"
    content = json.loads(manifest.read_text())
    for damaged in ("", "[]", json.dumps({**content, "version": 99}), json.dumps({**content, "shards": 5})):
        manifest.write_text(damaged)
        with pytest.raises(MarError, match="damaged"):
            VectorFolder.open(tmp_path / "v")
    manifest.unlink()
    with pytest.raises(MarError, match="not finished"):
        VectorFolder.open(tmp_path / "v")
    with pytest.raises(MarError, match="not a folder of vectors"):
        VectorFolder.open(tmp_path)
