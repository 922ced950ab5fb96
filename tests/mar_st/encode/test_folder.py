"""Vectors that were written are read back, in every form."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mar_st.encode import VectorFolder, VectorsError, write_vectors
from mar_st.encode.folder import text_digests
from mar_st.encode.shards import check_shard
from mar_st.errors import MarError
from mar_st.files.digests import BLOCK_BYTES, EDGE_BYTES
from tests.mar_st.encode.older import without_digests

if TYPE_CHECKING:
    from pathlib import Path


def vectors(number: int = 50, dim: int = 16) -> np.ndarray:
    drawn = np.random.default_rng(0).standard_normal((number, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def ids(number: int = 50) -> list[str]:
    return [f"文{i}" for i in range(number)]


#: Largest error of a value by form; bits keep the direction alone.
TOLERANCE = {"float32": 0.0, "float16": 5e-4, "int8": 1 / 254}


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_written_vectors_are_read_back(tmp_path: Path, dtype: str) -> None:
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
    blocks = list(folder.blocks(20))
    assert [len(block) for block, _ in blocks] == [20, 20, 10]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), loaded)
    assert [name for block, _ in blocks for name in block] == ids()
    assert loaded.flags.writeable
    folder.verify()


def test_binary_vectors_keep_the_signs(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), dtype="binary", shard=20)
    np.testing.assert_array_equal(folder[:] > 0, vectors() > 0)
    np.testing.assert_allclose(np.linalg.norm(folder[:], axis=1), 1, atol=1e-6)
    codes = np.concatenate([block["vectors"] for block in folder.codes(7)])
    np.testing.assert_array_equal(codes, np.packbits(vectors() > 0, axis=1))
    with pytest.raises(MarError, match="multiple of 8"):
        write_vectors(tmp_path / "w", ids(), vectors(dim=12), dtype="binary")


def test_stored_codes_are_returned_unchanged(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), dtype="int8", shard=20)
    parts = list(folder.codes())
    codes, scale = (np.concatenate([part[name] for part in parts]) for name in ("vectors", "scale"))
    assert codes.dtype == np.int8
    assert (np.abs(codes).max(axis=1) == 127).all()
    np.testing.assert_array_equal(codes * scale[:, None], folder[:])


def test_lengths_ids_and_folders_are_checked(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match=r"a vector .* for each of 49 ids"):
        write_vectors(tmp_path / "v", ids(49), vectors())
    with pytest.raises(VectorsError, match="ids repeat"):
        write_vectors(tmp_path / "v", ["a"] * 50, vectors())
    write_vectors(tmp_path / "v", ids(), vectors())
    with pytest.raises(VectorsError, match="holds vectors already"):
        write_vectors(tmp_path / "v", ids(), vectors())


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match="not a folder of vectors"):
        VectorFolder.open(tmp_path)
    folder = write_vectors(tmp_path / "v", ids(), vectors(), shard=20)
    path = folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"version": 9}))
    with pytest.raises(VectorsError, match="version 9"):
        VectorFolder.open(folder.path)
    path.unlink()
    with pytest.raises(VectorsError, match="not finished"):
        VectorFolder.open(folder.path)
    path.write_text(json.dumps(manifest))
    (folder.path / "shards" / "000001.arrow").unlink()
    with pytest.raises(VectorsError, match=r"000001.arrow is missing"):
        VectorFolder.open(folder.path)


def test_damage_is_noticed(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), shard=20)
    path = folder.path / "shards" / "000001.safetensors"
    content = path.read_bytes()
    for damaged in (content[:-4], content[:-1] + b"x", b"\xff" * 100, b"\0" * len(content)):
        path.write_bytes(damaged)
        with pytest.raises(VectorsError, match=r"000001\.safetensors (has|holds)"):
            VectorFolder.open(folder.path)[25]
        with pytest.raises(VectorsError, match=r"000001\.safetensors (has|holds)"):
            VectorFolder.open(folder.path).verify()
        with pytest.raises(MarError, match=r"000001\.safetensors"):
            check_shard(folder.path / "shards", 1)
        np.testing.assert_array_equal(VectorFolder.open(folder.path)[:20], vectors()[:20])
    path.write_bytes(content)
    assert check_shard(folder.path / "shards", 1)
    VectorFolder.open(folder.path).verify()


def test_a_flipped_bit_in_a_large_file_is_found_by_the_whole_digest(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(4000), vectors(4000, 32))
    path = folder.path / "shards" / "000000.safetensors"
    content = bytearray(path.read_bytes())
    content[EDGE_BYTES + BLOCK_BYTES + 8] ^= 1
    path.write_bytes(content)
    assert VectorFolder.open(folder.path)[0].shape == (32,)
    with pytest.raises(VectorsError, match="holds other bytes than were written"):
        VectorFolder.open(folder.path).verify()


def test_a_folder_without_digests_in_its_shards_is_read_and_checked(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), shard=20)
    without_digests(folder.path)
    opened = VectorFolder.open(folder.path)
    np.testing.assert_array_equal(opened[:], vectors())
    opened.verify()
    assert not check_shard(folder.path / "shards", 1)
    path = folder.path / "shards" / "000001.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(MarError, match="cut short"):
        VectorFolder.open(folder.path)[25]


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "x/../../../ESCAPED"), ("files", {"x/../../../ESCAPED": "0"}), ("files", []), ("count", "20"),
     ("count", 0), ("count", 21), ("files", {"000000.safetensors": 1, "000000.arrow": 2})],
)  # fmt: skip
def test_a_false_manifest_is_one_error(tmp_path: Path, field: str, value: object) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), shard=20)
    (tmp_path / "ESCAPED").write_text("x")
    path = folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0][field] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(VectorsError, match=r"manifest\.json is damaged"):
        VectorFolder.open(folder.path)


def test_a_linked_shard_is_not_read(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), shard=20)
    path = folder.path / "shards" / "000001.arrow"
    path.rename(tmp_path / "secret")
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(VectorsError, match="symbolic link out of"):
        VectorFolder.open(folder.path)


@pytest.mark.parametrize(
    "change",
    [{"data_offsets": [-8, 1272]}, {"data_offsets": [0, 1 << 60]}, {"shape": [20, 17]}, {"dtype": "F64"},
     {"shape": [1 << 40, 16]}, {"shape": "20"}],
)  # fmt: skip
def test_a_false_header_is_one_error(tmp_path: Path, change: dict[str, object]) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), shard=20)
    without_digests(folder.path)
    path = folder.path / "shards" / "000001.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["vectors"] |= change
    new = json.dumps(header).encode()
    path.write_bytes(len(new).to_bytes(8, "little") + new + content[8 + length :])
    with pytest.raises(MarError, match=r"000001\.safetensors is (damaged|cut short)"):
        VectorFolder.open(folder.path)[25]


def test_text_digests_are_stored_and_a_folder_can_be_pickled(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors(), texts=ids(), shard=20)
    assert folder.text_digests.to_pylist() == text_digests(ids())
    again = pickle.loads(pickle.dumps(folder))
    np.testing.assert_array_equal(again[:], vectors())


def test_rows_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ids(), vectors())
    with pytest.raises(IndexError, match="50 vectors"):
        folder[[50]]
    assert folder[10:10].shape == (0, 16)


def test_indices_that_are_no_rows_are_refused(tmp_path: Path) -> None:
    folder = write_vectors(tmp_path / "v", ["a", "b", "c"], np.eye(3))
    assert folder[[]].shape == (0, 3)
    assert folder[np.array([True, False, True])].tolist() == [[1, 0, 0], [0, 0, 1]]
    for rows in ([True, False], True, [0.5], "a", [[0, 1]], np.ones((3, 3), dtype=bool)):
        with pytest.raises(IndexError, match="Rows are given by a number"):
            folder[rows]
