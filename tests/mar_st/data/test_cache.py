"""Tests of the cache of tables: each is made once, and what is damaged is made again or refused."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from mar_st.data import DataError
from mar_st.data.cache import cache_key, cache_root, cached_table, file_digests

SCHEMA = pa.schema([("text", pa.string())])
KEY = cache_key(content="data")
#: Time stamp of a file that has not been changed for a while.
LONG_AGO = 1_000_000_000


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """Power cuts have tests of their own."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path):
    monkeypatch.setenv("MAR_DATA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    """Makes a table of two rows, and counts how often."""

    def __init__(self, failing=None):
        self.times, self.failing = 0, failing

    def batches(self):
        self.times += 1
        yield pa.RecordBatch.from_pydict({"text": ["一", "二"]}, schema=SCHEMA)
        if self.failing == "batches":
            raise KeyboardInterrupt

    def about(self):
        if self.failing == "about":
            raise KeyboardInterrupt
        return {"rows": "二"}

    def __call__(self, key=KEY):
        table, about = cached_table(key, SCHEMA, self.batches, self.about)
        return table.column("text").to_pylist(), about


EXPECTED = (["一", "二"], {"rows": "二"})


def test_a_table_is_made_once_for_each_key():
    make = Maker()
    assert make() == make() == EXPECTED
    assert make.times == 1
    make(cache_key(content="other"))
    assert make.times == 2


def _without_about(content):
    return json.dumps({name: value for name, value in json.loads(content).items() if name != "about"})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("manifest.json", lambda content: b""),
        ("manifest.json", lambda content: content[:-5]),
        ("manifest.json", lambda content: b"null"),
        ("manifest.json", lambda content: b"[1]"),
        ("manifest.json", lambda content: b"\xff"),
        ("manifest.json", lambda content: _without_about(content).encode()),
        ("rows.arrow", lambda content: b""),
        ("rows.arrow", lambda content: content[:-8]),
        ("rows.arrow", lambda content: content + b"more"),
    ],
)
def test_a_half_written_table_is_made_again(root, name, change):
    make = Maker()
    make()
    path = root / KEY / name
    path.write_bytes(change(path.read_bytes()))
    assert make() == EXPECTED
    assert make.times == 2


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_a_table_whose_bytes_were_overwritten_is_one_error_that_says_what_to_delete(root, byte):
    make = Maker()
    make()
    path = root / KEY / "rows.arrow"
    path.write_bytes(byte * path.stat().st_size)
    with pytest.raises(DataError, match=rf"rows\.arrow is damaged .*\. Delete {root / KEY}; "):
        make()


@pytest.mark.parametrize("failing", ["batches", "about"])
def test_a_table_that_could_not_be_made_leaves_nothing(root, failing):
    with pytest.raises(KeyboardInterrupt):
        Maker(failing)()
    assert [path for path in root.iterdir() if path.is_dir()] == []
    assert Maker()() == EXPECTED


def test_the_key_follows_names_and_values_but_not_their_order():
    assert cache_key(a=1, b=[2]) == cache_key(b=[2], a=1)
    assert len({cache_key(a=1), cache_key(b=1), cache_key(a="1"), cache_key(a=[1]), cache_key(a=None)}) == 5


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"one")
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_digests_of_files_follow_their_content(file, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"two")
    for content in (b"one", b"six", b"three"):  # the first two are equally long, and young
        other.write_bytes(content)
        assert file_digests([file, other, file]) == [_sha256(file), _sha256(other), _sha256(file)]


def test_the_digest_of_a_young_file_is_not_remembered(tmp_path):
    path = tmp_path / "young.jsonl"
    path.write_bytes(b"one")
    status = path.stat()
    file_digests([path])
    path.write_bytes(b"six")  # a coarse clock may give it the same time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_digests([path]) == [_sha256(path)]


@pytest.mark.parametrize("remembered", [b"", b"junk", b"\xff\xfe", b"0" * 63, b"0" * 64 + b"\n"])
def test_a_damaged_digest_is_not_used(root, file, remembered):
    expected = file_digests([file])
    (memory,) = (root / "digests").iterdir()
    memory.write_bytes(remembered)
    assert file_digests([file]) == expected == [_sha256(file)]


def test_the_digest_of_an_old_file_is_remembered_until_its_time_changes(root, file):
    file_digests([file])
    (memory,) = (root / "digests").iterdir()
    memory.write_bytes(b"0" * 64)
    assert file_digests([file]) == ["0" * 64]
    os.utime(file, (LONG_AGO + 1, LONG_AGO + 1))
    assert file_digests([file]) == [_sha256(file)]


def test_the_cache_is_where_the_variable_says(monkeypatch, root):
    assert cache_root() == root
    monkeypatch.setenv("MAR_DATA_CACHE", "~/tables")
    assert cache_root() == Path.home() / "tables"
    monkeypatch.setenv("MAR_DATA_CACHE", "")
    assert (cache_root().name, cache_root().is_absolute()) == ("mar", True)
