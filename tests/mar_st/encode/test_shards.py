"""Tests of one shard of a folder of vectors: written, read back, and damaged in every way."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mar_st.encode import shards
from mar_st.encode.shards import Shard, check_shard, read_header, read_table, write_shard
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDS = ["文0", "d1", "", "a/../b"]
DIGESTS = [bytes([number]) * 16 for number in range(4)]
VECTORS = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power cuts have tests of their own."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def write(folder: Path, dtype: str = "float32", number: int = 0, **change: Any) -> Path:
    given = {"ids": IDS, "digests": DIGESTS, "vectors": VECTORS, **change}
    write_shard(folder, number, **given, dtype=dtype, metadata={"model": "模型", "rows": [0, 4]})
    return folder / f"{number:06d}.safetensors"


def with_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Write a file again with another header, its vectors as they are."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    new = json.dumps(change(header)).encode()
    path.write_bytes(len(new).to_bytes(8, "little") + new + content[8 + length :])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
def test_a_shard_is_read_back_with_its_facts(tmp_path: Path, dtype: str) -> None:
    path = write(tmp_path, dtype)
    shard = Shard.open(tmp_path, 0)
    assert shard.table.to_pydict() == {"id": IDS, "digest": DIGESTS}
    assert [len(tensor) for tensor in shard.tensors.values()] == [4] * len(shard.tensors)
    if dtype == "float32":
        np.testing.assert_array_equal(shard.tensors["vectors"], VECTORS)
    assert read_header(path).metadata == {"model": "模型", "rows": [0, 4]}
    assert check_shard(tmp_path, 0)


def test_equal_content_gives_equal_bytes_and_no_other_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, vectors=VECTORS + (name == "two"))
        write(tmp_path / name)  # replaces it
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")
    ]
    assert sorted(contents[0]) == ["000000.arrow", "000000.safetensors"]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("end", ["safetensors", "arrow"])
def test_the_files_of_two_shards_do_not_go_together(tmp_path: Path, end: str) -> None:
    write(tmp_path)
    write(tmp_path, number=1, ids=["x", "y", "z", "w"], vectors=-VECTORS)
    shutil.copy(tmp_path / f"000001.{end}", tmp_path / f"000000.{end}")
    with pytest.raises(MarError, match=r"000000\.arrow holds other bytes than were written"):
        check_shard(tmp_path, 0)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_changed_byte_of_the_vectors_is_found(tmp_path: Path, dtype: str) -> None:
    path = write(tmp_path, dtype)
    content = path.read_bytes()
    start = read_header(path).start
    for place in (*range(start, len(content), 11), len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(MarError, match="holds other bytes"):
            check_shard(tmp_path, 0)
    path.write_bytes(content)
    assert check_shard(tmp_path, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: [],
        lambda header: None,
        lambda header: "vectors",
        lambda header: {**header, "__metadata__": None},
        lambda header: {**header, "__metadata__": {"shard": "[1]"}},
        lambda header: {**header, "__metadata__": {"shard": '{"check": null}'}},
        lambda header: {"scale": header["vectors"]},
        lambda header: {**header, "vectors": None},
        lambda header: {**header, "vectors": {**header["vectors"], "dtype": ["F32"]}},
        lambda header: {**header, "vectors": {**header["vectors"], "dtype": "F64"}},
        lambda header: {**header, "vectors": {**header["vectors"], "shape": [4, "8"]}},
        lambda header: {**header, "vectors": {**header["vectors"], "shape": [True, 32]}},
        lambda header: {**header, "vectors": {**header["vectors"], "shape": []}},
        lambda header: {**header, "vectors": {**header["vectors"], "shape": [5, 8]}},
        lambda header: {**header, "vectors": {**header["vectors"], "data_offsets": [128]}},
        lambda header: {**header, "vectors": {**header["vectors"], "data_offsets": [-128, 0]}},
        lambda header: {**header, "vectors": {**header["vectors"], "data_offsets": [10**30, 10**30 + 128]}},
        lambda header: {**header, "scale": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}},
    ],
)
def test_a_header_that_does_not_fit_is_one_error(tmp_path: Path, change: Callable[..., Any]) -> None:
    path = write(tmp_path)
    with_header(path, change)
    with pytest.raises(MarError, match=r"000000\.safetensors (is damaged|is cut short|has not one vector)"):
        check_shard(tmp_path, 0)


@pytest.mark.parametrize(
    "content", [b"", b"1234567", bytes(8), b"\xff" * 8 + b"{}", b"\x02" + bytes(7) + b"\xff\xfe", bytes(500)]
)
@pytest.mark.parametrize("end", ["safetensors", "arrow"])
def test_a_file_of_something_else_is_one_error(tmp_path: Path, end: str, content: bytes) -> None:
    write(tmp_path)
    (tmp_path / f"000000.{end}").write_bytes(content)
    with pytest.raises(MarError, match=rf"000000\.{end} is damaged .* Delete it and encode again"):
        check_shard(tmp_path, 0)


@pytest.mark.parametrize("end", ["safetensors", "arrow"])
def test_missing_and_cut_files_are_named(tmp_path: Path, end: str) -> None:
    write(tmp_path)
    path = tmp_path / f"000000.{end}"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(MarError, match=rf"000000\.{end} is (damaged|cut short)"):
        check_shard(tmp_path, 0)
    path.unlink()
    with pytest.raises(MarError, match=rf"000000\.{end} is missing"):
        check_shard(tmp_path, 0)


@pytest.mark.parametrize(
    "table",
    [
        {"id": ["a", None], "digest": DIGESTS[:2]},
        {"id": ["a", "b"]},
        {"id": ["a"], "digest": [b"short"]},
        {"id": [[1]], "digest": DIGESTS[:1]},
    ],
)
def test_a_table_without_ids_and_digests_is_refused(tmp_path: Path, table: dict[str, Any]) -> None:
    content = pa.table(table)
    with pa.ipc.new_file(str(tmp_path / "000000.arrow"), content.schema) as writer:
        writer.write_table(content)
    with pytest.raises(MarError, match=r"000000\.arrow is damaged"):
        read_table(tmp_path / "000000.arrow")


def test_vectors_that_cannot_be_stored_leave_the_shard_that_was_there(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(MarError, match="NaN"):
        write(tmp_path, vectors=VECTORS * np.nan)
    assert check_shard(tmp_path, 0)


def test_a_replacement_that_is_killed_never_leaves_new_ids_beside_old_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    move = shards.move_file

    def killed_after_the_ids(part: Path, path: Path) -> None:
        if path.suffix == ".safetensors":
            raise KeyboardInterrupt
        move(part, path)

    monkeypatch.setattr(shards, "move_file", killed_after_the_ids)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, ids=["x", "y", "z", "w"], vectors=-VECTORS)
    with pytest.raises(MarError, match=r"000000\.safetensors is missing"):
        check_shard(tmp_path, 0)
