"""Change the tables of a folder, and read the errors that it causes."""

from __future__ import annotations

import json

import pytest

from medteb_mteb.folders import FolderError, read_folder


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def append(path, text):
    with path.open("ab") as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())


def problems_of(folder):
    with pytest.raises(FolderError) as caught:
        read_folder(folder)
    return caught.value
