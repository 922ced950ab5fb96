"""Folders of tasks and editions with one changed file."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from medteb_mteb.editions import EditionError, load_edition, verify, write_manifest
from medteb_mteb.folders.problems import FolderError
from medteb_mteb.folders.reader import read_folder
from tests.fuzz.engine import Target
from tests.fuzz.folders import Changed

if TYPE_CHECKING:
    from pathlib import Path

_CARD = """---
license: cc0-1.0
configs:
- config_name: corpus
  data_files:
  - split: corpus
    path: corpus.jsonl
---
A card.
"""


def _whole(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{n}", "title": "t", "text": f"文{n}"} for n in range(4)]
    queries = [{"_id": f"q{n}", "text": f"问{n}"} for n in range(2)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td2\t2\n", encoding="utf-8"
    )
    (folder / "README.md").write_text(_CARD, encoding="utf-8")
    write_manifest(
        folder, task="A", name="a", version="1.0.0", licence="cc0-1.0", counts={"queries": 2, "corpus": 4}
    )


def prepare(folder: Path) -> Target:
    """Set up the target: changed editions."""
    _whole(folder / "whole")
    changed = Changed(folder / "whole", folder / "A")

    def read(place: Path) -> str:
        edition = load_edition(place)
        assert len(edition.digest) == 64
        with suppress(EditionError):
            verify(edition)
        return f"read {read_folder(place, check_manifest=False).name}"

    def check(data: bytes) -> str:
        try:
            return changed.with_file(data, read, lambda place, name: None)
        except FolderError as error:  # it lists all problems of a folder, a line each
            return f"refused: {str(error).splitlines()[0]}"

    words = (
        b"data_files",
        b"path: ",
        b"../",
        b"- split: test",
        b"---\n",
        b"*",
        b"&a",
        b"!!python/object",
        b"\t",
        b"q0",
        b"d0",
    )
    return Target(changed.seeds(), check, (EditionError,), named=True, words=words)
