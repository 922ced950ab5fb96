"""Tests of the files that a killed mining run resumes from."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from mar_st.mining.blocks import BlockResult, claim, read_block, score_sums, write_block
from mar_st.mining.rules import MinedQuery, Picked

BLOCK = BlockResult(
    [Picked([3, 1], [7]), Picked.none()],
    [(2,), ()],
    Counter({"candidates": 5, "near-duplicate": 3}),
    {"positives": 1.5, "mined negatives": 0.0},
)
IDENTITY = {"rules": {"window": [1, 100], "margin": None}, "data": "二"}


@pytest.fixture
def work(tmp_path):
    claim(tmp_path / "a" / "work", IDENTITY)
    return tmp_path / "a" / "work"


def test_a_written_block_is_read_back(work):
    write_block(work, 512, BLOCK)
    assert read_block(work, 512) == BLOCK
    assert read_block(work, 0) is None
    assert [name.name for name in work.glob("block-*")] == ["block-000000512.json"]


def test_without_a_folder_no_block_is_kept():
    write_block(None, 0, BLOCK)
    assert read_block(None, 0) is None


def test_the_same_identity_keeps_finished_blocks(work):
    write_block(work, 0, BLOCK)
    claim(work, dict(reversed(IDENTITY.items())))
    assert read_block(work, 0) == BLOCK


@pytest.mark.parametrize("other", [{**IDENTITY, "data": "三"}, {"data": "二"}, {}])
def test_another_identity_deletes_blocks_and_no_other_files(work, other):
    write_block(work, 0, BLOCK)
    write_block(work, 512, BLOCK)
    (work / "notes.json").write_text("{}")
    claim(work, other)
    assert read_block(work, 0) is read_block(work, 512) is None
    assert (work / "notes.json").is_file()
    write_block(work, 0, BLOCK)
    claim(work, other)
    assert read_block(work, 0) == BLOCK


@pytest.mark.parametrize(
    "content", [b"", b'{"rules": ', b"\xff\xfe", b"null", pytest.param(b"[" * 100_000, id="deep")]
)
def test_blocks_beside_damaged_settings_are_not_used(work, content):
    write_block(work, 0, BLOCK)
    (work / "settings.json").write_bytes(content)
    claim(work, IDENTITY)
    assert read_block(work, 0) is None
    assert json.loads((work / "settings.json").read_text(encoding="utf-8")) == IDENTITY


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"null",
        lambda content: b"[]",
        lambda content: content.replace(b'"consistent"', b'"other"'),
        lambda content: content.replace(b'"filled": [[7], []]', b'"filled": [[7]]'),
        lambda content: content + b"\xff",
    ],
)
def test_a_damaged_block_counts_as_unfinished(work, damage):
    write_block(work, 0, BLOCK)
    (path,) = work.glob("block-*.json")
    damaged = damage(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    assert read_block(work, 0) is None
    write_block(work, 0, BLOCK)
    assert read_block(work, 0) == BLOCK


def test_sums_are_over_documents_that_have_a_score():
    questions = [MinedQuery("问", (0, 1), frozenset({0, 1})), MinedQuery("题", (2,), frozenset({2}))]
    picked = [Picked([5, 6], [8]), Picked.none()]
    sums = score_sums(questions, picked, [{0: 0.75, 5: 0.25, 6: -0.5, 8: 9.0}, {2: 0.5, 5: 4.0}])
    assert sums == {
        "positives": 1.25,
        "positives (number)": 2,
        "mined negatives": -0.25,
        "mined negatives (number)": 2,
    }
