from __future__ import annotations

import pytest

from medteb_mteb.folders import FolderError, inspect_folder, read_folder


def write(folder, name, rows):
    (folder / name).write_text("\n".join("\t".join(map(str, row)) for row in rows) + "\n", encoding="utf-8")


def judged_of(folder):
    return read_folder(folder).retrieval.judged


PAIR = ("query-id", "corpus-id")


def test_a_folder_without_negatives_has_no_judged_documents(make_folder):
    judged = judged_of(make_folder("Retrieval"))
    assert not judged.known
    assert judged.sources == ()


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("judged_negatives.tsv", [PAIR, ("q1", "d5"), ("q3", "d1")]),
        ("labels.tsv", [(*PAIR, "score"), ("q1", "d1", 1), ("q1", "d5", 0), ("q3", "d1", 0)]),
        ("grades.tsv", [(*PAIR, "grade"), ("q1", "d1", "S"), ("q1", "d5", "B"), ("q3", "d1", "D")]),
    ],
)
def test_negatives_are_read_from_every_file_that_lists_them(make_folder, name, rows):
    folder = make_folder("Retrieval")
    write(folder, name, rows)
    judged = judged_of(folder)
    assert judged.negatives == {"q1": {"d5"}, "q3": {"d1"}}
    assert judged.sources == (name,)
    assert (judged.known, judged.pairs, judged.contradictions, judged.dangling) == (True, 2, 0, 0)


def test_zeros_of_the_qrels_are_negatives_and_grades_below_are_not_judged(make_folder):
    folder = make_folder("Retrieval")
    with (folder / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1\td2\t0\nq1\td3\t-1\n")
    assert judged_of(folder).negatives == {"q1": {"d2"}}


def test_the_qrels_count_where_files_contradict_them(make_folder):
    folder = make_folder("Retrieval")
    write(folder, "judged_negatives.tsv", [PAIR, ("q1", "d1"), ("q1", "d5"), ("q9", "d1"), ("q1", "d99")])
    judged = judged_of(folder)
    assert judged.negatives == {"q1": {"d5"}}
    assert (judged.contradictions, judged.dangling) == (1, 2)


def test_disputed_pairs_are_neither_positive_nor_negative(make_folder):
    folder = make_folder("Retrieval")
    write(folder, "judged_negatives.tsv", [PAIR, ("q1", "d5")])
    write(folder, "disputed.tsv", [PAIR, ("q1", "d6"), ("q1", "d5"), ("q1", "d1"), ("q2", "d6")])
    judged = judged_of(folder)
    assert judged.disputed == {"q1": {"d6"}, "q2": {"d6"}}  # labelled pairs are decided
    assert judged.negatives == {"q1": {"d5"}}


def test_files_with_other_columns_are_left_alone_and_empty_ones_say_nothing(make_folder):
    folder = make_folder("Retrieval")
    write(folder, "labels.tsv", [("id", "name"), ("1", "x")])
    write(folder, "judged_negatives.tsv", [PAIR])
    assert judged_of(folder).sources == ()


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("grades.tsv", [(*PAIR, "grade"), ("q1", "d5", "E")], r"grades.tsv:2: the grade 'E' is not one of"),
        ("labels.tsv", [(*PAIR, "score"), ("q1", "d5", "no")], r"labels.tsv:2: score must be a number"),
        ("disputed.tsv", [PAIR, ("q1", " ")], r"disputed.tsv:2: query-id and corpus-id must be"),
    ],
)
def test_unusable_rows_are_named(make_folder, name, rows, message):
    folder = make_folder("Retrieval")
    write(folder, name, rows)
    with pytest.raises(FolderError, match=message):
        read_folder(folder)


def test_judged_files_are_in_the_revision_and_in_the_folder(make_folder, tmp_path):
    folder = make_folder("Retrieval")
    plain = inspect_folder(folder).revision()
    write(folder, "disputed.tsv", [PAIR, ("q1", "d6")])
    assert inspect_folder(folder).revision() != plain
    (folder / "disputed.tsv").unlink()
    assert inspect_folder(folder).revision() == plain
    write(tmp_path, "elsewhere.tsv", [PAIR, ("q1", "d6")])
    (folder / "disputed.tsv").symlink_to(tmp_path / "elsewhere.tsv")
    with pytest.raises(FolderError, match="symbolic link out of the folder"):
        inspect_folder(folder)
