"""Snapshots: rows, options and revisions of their files, and errors of malformed ones."""

from __future__ import annotations

import json

import mteb
import pytest
from tests.medteb_mteb.english.snapshots import rows_of, write_csv

from medteb_mteb.editions import sha256_of
from medteb_mteb.english.snapshot import (
    COLUMNS,
    SnapshotOptions,
    file_of,
    read_manifest,
    read_options,
    read_rows,
    revision_of,
)
from medteb_mteb.english.table import TYPES, english_tasks
from medteb_mteb.folders import FolderError

CLS = "classification_wiki_pain_vs_fever_dataset"
PAIR = "pairclassification_medqa_pair_classification"
RET = "retrieval_medquad_dataset"


@pytest.mark.parametrize(
    ("name", "columns", "rows", "message"),
    [
        (CLS, ("text", "class"), [("a", "b")], r"no column label; got text, class"),
        (CLS, ("text", "label"), [("a", "x"), ("", "y"), ("b", "x")], "2 full rows, or one label alone"),
        (
            PAIR,
            COLUMNS["PAIR"],
            [("a", "b", "1"), ("a", "c", "maybe")],
            "full row 2: label 'maybe' is not 0 or 1",
        ),
        (
            RET,
            ("query", "corpus"),
            [("a", "b", "c"), ("d", "e")],
            ":2: another number of cells than the header",
        ),
        (RET, ("query", "corpus"), [("a",), ("d", "e")], ":2: another number of cells than the header"),
    ],
)
def test_malformed_files_are_one_clear_error(snapshot, name, columns, rows, message):
    folder = snapshot(name)
    write_csv(folder / f"{name}.csv", columns, rows)
    with pytest.raises(FolderError, match=message):
        mteb.get_task(name).load_data()


def test_rows_with_empty_cells_are_dropped(snapshot):
    folder = snapshot(RET)
    write_csv(folder / f"{RET}.csv", COLUMNS["RET"], [("a", ""), *rows_of("RET"), (" ", "b")])
    assert len(read_rows(folder, english_tasks()[RET])) == 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "snapshot.json is not valid JSON"),
        ("[]", "expected an object with 'options' and 'tasks'"),
        ('{"options": {"colour": 1}, "tasks": {}}', "colour is 1; options are title, threshold, classifier"),
        ('{"options": {"title": ["a"]}, "tasks": {}}', r"title is \['a'\]; one of none, No title"),
        ('{"options": {}, "tasks": {"NAME": {"sha256": "0"}}}', "is not the file that snapshot.json names"),
    ],
)
def test_a_malformed_manifest_is_one_clear_error(snapshot, content, message):
    folder = snapshot(RET)
    (folder / "snapshot.json").write_text(content.replace("NAME", RET), encoding="utf-8")
    with pytest.raises(FolderError, match=message):
        mteb.get_task(RET).load_data()


def test_links_out_of_the_snapshot_are_refused(snapshot, tmp_path):
    folder = snapshot(RET)
    (folder / f"{RET}.csv").rename(tmp_path / "secret.csv")
    (folder / f"{RET}.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(FolderError, match="is a symbolic link out of the folder"):
        mteb.get_task(RET).load_data()


@pytest.mark.parametrize("kind", sorted(COLUMNS))
def test_written_rows_are_read_in_their_order_without_further_columns(tmp_path, kind):
    task = next(task for task in english_tasks().values() if task.type == kind)
    written = rows_of(kind)
    columns = ("id", *COLUMNS[kind])
    write_csv(file_of(tmp_path, task), columns, [(n, *row) for n, row in enumerate(written)])
    assert read_rows(tmp_path, task) == [dict(zip(COLUMNS[kind], row, strict=True)) for row in written]


def test_labels_of_pairs_may_be_numbers_or_words(tmp_path):
    labels = {"1": 1, "0.0": 0, " True ": 1, "False": 0, "1.0": 1, "0": 0}
    task = english_tasks()[PAIR]
    write_csv(file_of(tmp_path, task), COLUMNS["PAIR"], [("a", "b", label) for label in labels])
    assert [row["label"] for row in read_rows(tmp_path, task)] == list(labels.values())


def test_texts_of_several_lines_and_a_byte_order_mark_are_read(tmp_path):
    task = english_tasks()[RET]
    rows = [("one\ntwo", 'say "ah"'), ("a, b", "c")]
    write_csv(file_of(tmp_path, task), COLUMNS["RET"], rows)
    file = file_of(tmp_path, task)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert [tuple(row.values()) for row in read_rows(tmp_path, task)] == rows
    file.write_bytes(b"query,corpus\na,\xff\n")
    with pytest.raises(FolderError, match=rf"{RET}\.csv cannot be read \(UnicodeDecodeError\)"):
        read_rows(tmp_path, task)


def test_options_that_are_not_given_have_the_first_allowed_value(snapshot):
    folder = snapshot(RET)
    assert read_manifest(folder) == {"options": {}, "tasks": {}}
    assert read_options(folder) == SnapshotOptions()
    assert SnapshotOptions() == SnapshotOptions(**{k: v[0] for k, v in SnapshotOptions.allowed().items()})
    snapshot(RET, threshold="train")
    assert read_options(folder) == SnapshotOptions(threshold="train")


def test_each_option_changes_the_scores_of_one_type_of_task():
    other = SnapshotOptions(**{name: values[1] for name, values in SnapshotOptions.allowed().items()})
    assert {kind: other.relevant(kind) for kind in TYPES} == {
        "CLS": {"classifier": "fine-tuned"},
        "CLU": {},
        "PAIR": {"threshold": "train"},
        "RET": {"title": "No title"},
    }


def test_a_revision_follows_the_file_and_its_recorded_digest(snapshot):
    folder = snapshot(RET)
    task = english_tasks()[RET]
    plain = revision_of(folder, task)
    tasks = {RET: {"sha256": sha256_of(file_of(folder, task))}}
    (folder / "snapshot.json").write_text(json.dumps({"options": {}, "tasks": tasks}), encoding="utf-8")
    assert revision_of(folder, task) == plain  # that it is recorded changes nothing
    write_csv(file_of(folder, task), COLUMNS["RET"], rows_of("RET", 41))
    with pytest.raises(FolderError, match=r"is not the file that snapshot\.json names; it was changed"):
        revision_of(folder, task)
    (folder / "snapshot.json").unlink()
    assert revision_of(folder, task) != plain
