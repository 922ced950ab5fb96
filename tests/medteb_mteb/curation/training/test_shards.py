"""Rows written shard by shard: an interrupted step resumes, and the joined files do not show it."""

from __future__ import annotations

import errno
import hashlib
import json

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training.shards import Shards, lines, moved

#: Half a dozen characters at which Python, but no reader of JSON lines, ends a line.
ODD = "甲\u2028乙\u2029丙\x85丁\x0b戊\x1c己\r庚\n辛"


def rows_in(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def test_shards_are_joined_in_the_order_of_their_numbers(tmp_path):
    shards = Shards(tmp_path, ["pairs"])
    numbers = [11, 2, 100_000, 0, 99_999]
    for number in numbers:
        shards.write(number, {"pairs": [{"n": number}, {"n": number, "text": ODD}]}, {})
    digests = shards.join()
    expected = [row for n in sorted(numbers) for row in ({"n": n}, {"n": n, "text": ODD})]
    assert rows_in(tmp_path / "pairs.jsonl") == expected
    assert digests == {"pairs.jsonl": hashlib.sha256((tmp_path / "pairs.jsonl").read_bytes()).hexdigest()}


def test_a_file_without_rows_does_not_exist_not_even_an_old_one(tmp_path):
    shards = Shards(tmp_path, ["triples", "pairs"])
    (tmp_path / "pairs.jsonl").write_text("old\n")
    shards.write(0, {"triples": [{"a": 1}], "pairs": []}, {})
    assert list(shards.join()) == ["triples.jsonl"]
    assert not (tmp_path / "pairs.jsonl").exists()


def test_counts_are_the_sums_over_all_shards(tmp_path):
    shards = Shards(tmp_path, ["pairs"])
    shards.write(0, {}, {"read": 3, "failed:短": 1})
    shards.write(1, {}, {"read": 4, "kept": 2})
    assert shards.counts() == {"read": 7, "kept": 2, "failed:短": 1}
    assert Shards(tmp_path / "none", ["pairs"]).counts() == {}


def test_a_shard_is_finished_only_with_its_marker(tmp_path):
    shards = Shards(tmp_path, ["pairs"])
    assert shards.finished(3) is None

    def broken():
        yield {"a": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards.write(3, {"pairs": broken()}, {"read": 1})
    assert shards.finished(3) is None
    shards.write(3, {"pairs": [{"a": 1}]}, {"read": 1})
    assert shards.finished(3) == {"read": 1}
    assert shards.finished(2) is None


def test_a_shard_written_again_replaces_the_first(tmp_path):
    shards = Shards(tmp_path, ["pairs"])
    shards.write(0, {"pairs": [{"a": 1}, {"a": 2}]}, {"read": 2})
    shards.write(0, {"pairs": [{"a": 3}]}, {"read": 1})
    shards.join()
    assert rows_in(tmp_path / "pairs.jsonl") == [{"a": 3}]
    assert shards.counts() == {"read": 1}


def test_a_finished_step_keeps_only_the_joined_files(tmp_path):
    shards = Shards(tmp_path, ["triples", "pairs"])
    for name in ("step.json", "manifest.json", "notes.jsonl"):
        (tmp_path / name).write_text("{}")
    shards.write(0, {"triples": [{"a": 1}], "pairs": [{"b": 1}]}, {"read": 1})
    shards.join()
    shards.forget()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "manifest.json", "notes.jsonl", "pairs.jsonl", "step.json", "triples.jsonl",
    ]  # fmt: skip
    shards.forget()  # nothing is left to forget


def test_a_row_is_one_line_and_keeps_its_characters():
    text = lines([{"text": ODD}, {"text": "感冒"}])
    assert text.count("\n") == 2
    assert "感冒" in text
    assert [json.loads(line) for line in text.split("\n")[:-1]] == [{"text": ODD}, {"text": "感冒"}]
    assert lines([]) == ""


def test_a_full_disk_is_reported_with_the_file_and_leaves_the_old_one(tmp_path):
    target = tmp_path / "pairs.jsonl"
    target.write_text("old")

    def fill():
        with moved(target) as part:
            part.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BuildError, match=r"pairs\.jsonl cannot be written \(No space left.*Free disk space"):
        fill()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"pairs.jsonl": "old"}


def test_an_error_of_another_file_is_not_blamed_on_the_target(tmp_path):
    with pytest.raises(FileNotFoundError, match="source"), moved(tmp_path / "pairs.jsonl"):
        (tmp_path / "source.jsonl").read_text()
    assert list(tmp_path.iterdir()) == []
