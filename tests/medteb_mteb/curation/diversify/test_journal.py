"""The journal of decisions: what a later run reads of it, and which files it refuses."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from medteb_mteb.curation.diversify.journal import DecisionJournal
from medteb_mteb.curation.files.records import BuildError

SETTINGS = {"threshold": 0.8, "index": "exact"}
KEPT = np.array([True, False, True, True, False, True])


def vectors(n=6):
    return np.random.default_rng(0).standard_normal((n, 4)).astype(np.float32)


@pytest.fixture
def reopen(tmp_path):
    """Opens the journal `j`, by default for the same vectors and settings."""

    def call(given=None, **settings):
        return DecisionJournal(
            tmp_path / "j", vectors() if given is None else given, {**SETTINGS, **settings}
        )

    return call


@pytest.fixture
def content(reopen, tmp_path):
    """The bytes of a journal with all six decisions, made in two portions."""
    journal = reopen()
    journal.write(KEPT[:4])
    journal.write(KEPT[4:])
    return (tmp_path / "j").read_bytes()


def test_decisions_are_read_back_as_they_were_written(reopen, content):
    assert reopen().read().tolist() == KEPT.tolist()
    first, _, decisions = content.partition(b"\n")
    assert json.loads(first) == {**json.loads(first), **SETTINGS, "n": 6}
    assert len(decisions) == 6


@pytest.mark.parametrize("tail", [b"", b"\0" * 50, b"\xff\1\1", b"\n\1"])
def test_decisions_up_to_the_damaged_end_are_kept_after_any_kill(reopen, content, tmp_path, tail):
    start = content.index(b"\n") + 1
    for size in (0, 1, start // 2, start - 1, *range(start, len(content) + 1)):
        (tmp_path / "j").write_bytes(content[:size] + (tail if size >= start else b""))
        assert reopen().read().tolist() == KEPT[: max(0, size - start)].tolist()
    (tmp_path / "j").unlink()
    assert reopen().read().tolist() == []


def test_there_is_at_most_one_decision_for_each_vector(reopen, content, tmp_path):
    (tmp_path / "j").write_bytes(content + b"\1\2\1\2")
    assert reopen().read().tolist() == KEPT.tolist()


def test_decisions_can_be_cut_and_made_again(reopen, content, tmp_path):
    journal = reopen()
    journal.cut(3)
    assert journal.read().tolist() == KEPT[:3].tolist()
    journal.write(KEPT[3:])
    assert (tmp_path / "j").read_bytes() == content


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"threshold": 0.85}, "threshold"),
        ({"index": "ivf", "lists": 3}, "index, lists"),
        ({"threshold": 1, "index": "ivf"}, "threshold, index"),
    ],
)
def test_a_journal_of_other_settings_is_refused_by_their_names(reopen, content, tmp_path, settings, names):
    with pytest.raises(BuildError, match=rf"decisions with other {names}\. Give another file"):
        reopen(**settings)
    assert (tmp_path / "j").read_bytes() == content


def test_settings_that_only_the_journal_has_are_named(reopen, tmp_path):
    reopen(lists=3)
    with pytest.raises(BuildError, match=r"decisions with other lists\."):
        reopen()


@pytest.mark.parametrize("other", [vectors() + 1, vectors().astype(np.float64), vectors()[::-1].copy()])
def test_a_journal_of_other_vectors_is_refused(reopen, content, other):
    with pytest.raises(BuildError, match=r"decisions with other vectors\."):
        reopen(other)
    reopen(np.asfortranarray(vectors()))
    with pytest.raises(BuildError, match=r"decisions with other vectors, n\."):
        reopen(vectors(5))


@pytest.mark.parametrize(
    "line", [b"mine\n", b"[]\n", b"null\n", b"{}\n", b"\xff\n", b"[" * 100_000, b"9" * 5000 + b"\n", b"\n"]
)
def test_another_file_is_refused_and_stays(reopen, tmp_path, line):
    (tmp_path / "j").write_bytes(line)
    with pytest.raises(BuildError, match="is not a journal of decisions; give another file"):
        reopen()
    assert (tmp_path / "j").read_bytes() == line


def test_a_journal_that_cannot_be_written_is_named(reopen, tmp_path):
    with pytest.raises(BuildError, match=r"gone/j cannot be written \(No such file"):
        DecisionJournal(tmp_path / "gone" / "j", vectors(), SETTINGS)
    journal = reopen()
    os.unlink(tmp_path / "j")
    (tmp_path / "j").mkdir()
    with pytest.raises(BuildError, match="what was decided before is kept"):
        journal.write(KEPT)
