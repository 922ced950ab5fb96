"""A snapshot of English MedTEB with texts written for the tests."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from medteb_mteb.tasks.english import COLUMNS, FOLDER, english_tasks

if TYPE_CHECKING:
    from pathlib import Path

SICK = ("fever", "cough", "headache", "nausea", "rash")


def rows_of(kind: str, count: int = 40) -> list[tuple]:
    """Rows of a type of task: two topics, told apart by their words."""
    texts = [f"{SICK[i % 5]} of the {'heart' if i % 2 else 'skin'} in patient {i}" for i in range(count)]
    if kind in ("CLS", "CLU"):
        return [(text, "Cardiology" if i % 2 else "Dermatology") for i, text in enumerate(texts)]
    if kind == "PAIR":
        return [
            (text, text.upper() if i % 4 == 0 else texts[i - 1], int(i % 4 == 0))
            for i, text in enumerate(texts)
        ]
    return [(text, f"On {text}: see a doctor.") for text in texts]


def write_csv(path: Path, columns: tuple[str, ...], rows: list[tuple]) -> None:
    """A CSV file with a header."""
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows([columns, *rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table.getvalue(), encoding="utf-8")


def write_snapshot(root: Path, names: list[str] | None = None) -> Path:
    """The files of the named tasks, or of all, as the authors' scrapers would leave them."""
    for task in english_tasks().values():
        if names is None or task.name in names:
            write_csv(root / FOLDER / f"{task.name}.csv", COLUMNS[task.type], rows_of(task.type))
    return root / FOLDER
