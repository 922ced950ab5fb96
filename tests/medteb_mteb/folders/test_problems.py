"""Problems of a folder: shortened where there are many, counted in full, raised as one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from medteb_mteb.folders.problems import FolderError, Problems, short_repr

FOLDER = Path("/data/clinic")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("短", "'短'"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 56}..."),
        ("\ud800\n", r"'\ud800\n'"),
        ({"a": None}, "{'a': None}"),
    ],
)
def test_a_value_is_shown_in_at_most_sixty_characters(value, text):
    assert short_repr(value) == text
    assert len(short_repr(value)) <= 60
    short_repr(value).encode()


def test_one_problem_is_one_line_and_several_are_listed_below_their_number():
    problems = Problems(FOLDER)
    problems.raise_if_any()
    problems.add(FOLDER / "qrels" / "test.tsv", 3, "score", "no number")
    with pytest.raises(FolderError, match=r"^/data/clinic: qrels/test\.tsv:3: no number$"):
        problems.raise_if_any()
    problems.add(FOLDER / "corpus.parquet", 7, "text", "empty")
    problems.add("/elsewhere/run.json", None, "file", "gone")
    with pytest.raises(FolderError) as caught:
        problems.raise_if_any()
    assert str(caught.value).splitlines() == [
        "/data/clinic: 3 problems",
        "  qrels/test.tsv:3: no number",
        "  corpus.parquet:row 7: empty",
        "  /elsewhere/run.json: gone",
    ]


def test_one_mistake_in_every_line_does_not_hide_another():
    problems = Problems(FOLDER, limit=4, per_kind=2)
    for line in range(100):
        problems.add(FOLDER / "a.jsonl", line, "text", "empty")
    problems.add(FOLDER / "a.jsonl", 100, "id", "twice")
    problems.add(FOLDER / "b.jsonl", 1, "text", "empty")
    problems.add(FOLDER / "b.jsonl", 2, "id", "beyond the limit")
    with pytest.raises(FolderError) as caught:
        problems.raise_if_any()
    shown = ["a.jsonl:0: empty", "a.jsonl:1: empty", "a.jsonl:100: twice", "b.jsonl:1: empty"]
    assert (caught.value.problems, caught.value.total) == (shown, 103)
    assert str(caught.value).endswith("\n  ... and 99 more")
