"""Tests of digests of files: whole, by samples, and listed for a folder."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from mar_st.errors import MarError
from mar_st.files.digests import (
    BLOCK_BYTES,
    BLOCK_COUNT,
    EDGE_BYTES,
    check_file,
    entry_of,
    read_digests,
    refresh_digests,
    sample_of,
    write_digests,
)

if TYPE_CHECKING:
    from pathlib import Path

#: Largest file that a sample reads whole.
WHOLE = 2 * EDGE_BYTES + BLOCK_COUNT * BLOCK_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


@pytest.mark.parametrize("size", [0, 1, WHOLE, WHOLE + 1, 3 * WHOLE])
def test_an_unchanged_file_does_not_differ(path: Path, size: int) -> None:
    path.write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
    entry = entry_of(path)
    assert (entry["bytes"], entry["sha256"]) == (size, hashlib.sha256(path.read_bytes()).hexdigest())
    assert entry["sample"] == sample_of(path)
    assert [check_file(path, entry, check) for check in ("size", "sample", "whole")] == [None] * 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: bytes(len(content)),
        lambda content: content[len(content) // 2 :] + content[: len(content) // 2],
        lambda content: bytes([content[0] ^ 1]) + content[1:],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
        lambda content: content[:WHOLE] + bytes(len(content) // 10) + content[WHOLE + len(content) // 10 :],
    ],
    ids=["zeroed", "swapped", "first bit", "last bit", "half zeroed", "a tenth zeroed"],
)
def test_the_sample_of_a_large_file_finds_damage_at_its_edges_and_in_large_parts(
    path: Path, damage: Any
) -> None:
    content = hashlib.shake_128(b"seed").digest(4 * WHOLE)
    path.write_bytes(content)
    entry = entry_of(path)
    path.write_bytes(damage(content))
    assert check_file(path, entry, "size") is None
    assert (
        check_file(path, entry, "sample") == check_file(path, entry) == "holds other bytes than were written"
    )


def test_a_single_bit_of_a_large_file_is_found_by_the_whole_digest(path: Path) -> None:
    content = bytearray(4 * WHOLE)
    path.write_bytes(content)
    entry = entry_of(path)
    content[EDGE_BYTES + BLOCK_BYTES + 8] ^= 1
    path.write_bytes(content)
    assert check_file(path, entry, "sample") is None
    assert check_file(path, entry, "whole") == "holds other bytes than were written"


@pytest.mark.parametrize("place", [0, 700, 1499])
def test_every_bit_of_a_small_file_is_in_its_sample(path: Path, place: int) -> None:
    content = bytearray(1500)
    path.write_bytes(content)
    entry = entry_of(path)
    content[place] ^= 1
    path.write_bytes(content)
    assert check_file(path, entry, "sample") is not None


def test_sizes_are_named_and_fields_that_are_missing_are_not_compared(path: Path) -> None:
    path.write_bytes(b"four")
    assert check_file(path, {"bytes": 5, "sha256": "0"}) == "has 4 bytes; 5 were written"
    assert check_file(path, {"sha256": "0"}, "sample") is None
    assert check_file(path, {"sha256": "0"}) is not None
    assert check_file(path, {}) is None
    with pytest.raises(FileNotFoundError):
        check_file(path.with_name("none"), {})


def test_a_folder_in_place_of_a_file_is_a_difference(tmp_path: Path) -> None:
    for check in ("size", "sample", "whole"):
        entry = {"bytes": tmp_path.stat().st_size, "sha256": "0", "sample": "0"}
        assert check_file(tmp_path, entry, check) == "is a folder; a file was written"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model.safetensors", "1_Dense/config.json", "README.md", ".cache/lock", "模型.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


NAMES = ["1_Dense/config.json", "model.safetensors", "模型.txt"]


def test_all_files_but_cards_and_hidden_ones_are_listed(folder: Path) -> None:
    assert read_digests(folder) is None
    write_digests(folder)
    first = (folder / "digests.json").read_bytes()
    entries = read_digests(folder)
    assert entries == {name: entry_of(folder / name) for name in NAMES}
    write_digests(folder)  # the listing does not list itself
    assert (folder / "digests.json").read_bytes() == first


def test_refreshing_follows_written_new_and_deleted_files_and_keeps_the_entries_of_others(
    folder: Path,
) -> None:
    refresh_digests(folder, lambda name: True)
    assert read_digests(folder) is None  # a folder without a listing gets none
    write_digests(folder)
    before = read_digests(folder)
    for name in ("model.safetensors", "1_Dense/config.json", "new.json"):
        (folder / name).write_text("changed")
    (folder / "模型.txt").unlink()
    refresh_digests(folder, lambda name: name == "model.safetensors")
    entries = read_digests(folder)
    assert list(entries) == ["1_Dense/config.json", "model.safetensors", "new.json"]
    assert entries["1_Dense/config.json"] == before["1_Dense/config.json"]  # damage gets no valid digest
    assert check_file(folder / "1_Dense/config.json", entries["1_Dense/config.json"]) is not None
    for name in ("model.safetensors", "new.json"):
        assert check_file(folder / name, entries[name]) is None


VALID = {"bytes": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "files",
    [
        None,
        [],
        {"a": 1},
        {"a": {}},
        {"a": {**VALID, "bytes": "1"}},
        {"a": {**VALID, "bytes": True}},
        {"a": {**VALID, "bytes": 1.0}},
        {"a": {**VALID, "sha256": None}},
        {"../a": VALID},
        {"/etc/passwd": VALID},
        {"a/../../b": VALID},
        {"": VALID},
        {".ssh/key": VALID},
    ],
)
def test_a_damaged_or_false_listing_is_one_error(tmp_path: Path, files: Any) -> None:
    (tmp_path / "digests.json").write_text(
        json.dumps({"format": "mar-digests", "version": 1, "files": files})
    )
    with pytest.raises(MarError, match=r"digests\.json (is damaged|names)"):
        read_digests(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b"[]", "is damaged"),
        (b"null", "is damaged"),
        (b'{"format": "mar-digests", "version": 1', "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b'{"format": "mar-digests", "version": 2, "files": {}}', "update medteb"),
        (b'{"format": "other", "version": 1, "files": {}}', "update medteb"),
    ],
)
def test_a_file_that_is_no_listing_of_this_version_is_one_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "digests.json").write_bytes(content)
    with pytest.raises(MarError, match=rf"digests\.json .*{message}"):
        read_digests(tmp_path)
