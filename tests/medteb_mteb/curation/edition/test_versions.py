"""New versions of an edition: earlier labels stay, new ones follow, and versions are never given twice."""

from __future__ import annotations

import json
import shutil

import pytest

from medteb_mteb.curation.edition.versions import Change, next_version, write_version
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import Label
from medteb_mteb.editions import load_edition, verify, write_manifest
from medteb_mteb.folders import read_folder

HEADER = "query-id\tcorpus-id\tscore"
NEW = (
    Label("q1", "d3", 1),
    Label("q0", "d4", 0),
    Label("q0", "d2", 2),
    Label("q1", "d5", None, "judges disagree"),
)


@pytest.fixture
def folder(tmp_path, retrieval_folder):
    """A retrieval edition with three positives, a judged negative, a card and files that are no data."""
    path = tmp_path / "edition"
    retrieval_folder(path)
    rows = ["q0\td0\t1", "q1\td1\t1", "q2\td2\t1", "q2\td0\t0"]
    (path / "labels.tsv").write_text("\n".join([HEADER, *rows]) + "\n")
    (path / "README.md").write_text("---\nlicense: mit\n---\n# Card\n")
    (path / ".cache").write_text("private")
    return path


def manifest(folder, version="1.0.0", **extra):
    return write_manifest(
        folder,
        task="MedTEBRetrieval",
        name="mini",
        version=version,
        licence="mit",
        counts={"queries": 3, "corpus": 6, "qrels": 3},
        **extra,
    )


def change(version="1.1.0", labels=NEW):
    return Change(version, ("bm25", "new"), 10, len(labels), tuple(labels))


def extended(folder, out, made=None, **extra):
    edition = manifest(folder, **extra)
    return write_version(
        edition, read_folder(folder).retrieval, made or change(), out, {"judges": [{"name": "j"}]}
    )


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("version", "following"), [("1.0.0", "1.1.0"), ("0.9.3", "0.10.0"), ("2.10.7", "2.11.0")]
)
def test_the_next_version_is_the_next_minor_one(folder, version, following):
    assert next_version(manifest(folder, version), None) == following


def test_a_version_of_the_history_is_never_given_again(folder):
    history = [{"version": version} for version in ("1.0.0", "1.1.0", "1.2.0")]
    edition = manifest(folder, "1.0.1", history=history)
    assert next_version(edition, None) == "1.3.0"
    assert next_version(edition, "1.0.2") == "1.0.2"
    for taken in ("1.0.0", "1.2.0", "1.0.1", "", "  "):
        with pytest.raises(BuildError, match=r"There is a version .* give another"):
            next_version(edition, taken)


@pytest.mark.parametrize("version", ["2024-05", "1.0", "v1.0.0", "1.0.0rc1", f"1.{'9' * 5000}.0"])
def test_after_a_version_of_another_form_one_must_be_given(folder, version):
    edition = manifest(folder, version)
    with pytest.raises(BuildError, match=r"say which comes next \(--version\)"):
        next_version(edition, None)
    assert next_version(edition, "2.0.0") == "2.0.0"


@pytest.mark.parametrize("history", [None, "1.1.0", {"version": "1.1.0"}, [None, "1.1.0", 3, ["x"]]])
def test_a_history_of_another_form_counts_as_none(folder, tmp_path, history):
    edition = manifest(folder, history=history)
    assert next_version(edition, None) == "1.1.0"
    newer = extended(folder, tmp_path / "out", history=history)
    assert [one["version"] for one in newer.extra["history"]] == ["1.0.0"]


def test_new_labels_follow_the_earlier_ones(folder, tmp_path):
    newer = extended(folder, tmp_path / "out")
    verify(newer)
    added = {
        "qrels/test.tsv": ["q0\td2\t2", "q1\td3\t1"],
        "labels.tsv": ["q0\td2\t2", "q0\td4\t0", "q1\td3\t1"],
    }
    for name, rows in added.items():
        assert lines(tmp_path / "out" / name) == [*lines(folder / name), *rows]
    assert lines(tmp_path / "out" / "disputed.tsv") == ["query-id\tcorpus-id", "q1\td5"]
    assert newer.counts == {"queries": 3, "corpus": 6, "qrels": 5}
    assert json.loads((tmp_path / "out" / "provenance.json").read_bytes())["judges"] == [{"name": "j"}]
    assert not (tmp_path / "out" / ".cache").exists()


def test_the_earlier_version_is_unchanged_and_named_in_the_history(folder, tmp_path):
    edition = manifest(folder, seed=5)
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    newer = extended(folder, tmp_path / "out", seed=5)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == content
    (entry,) = newer.extra["history"]
    assert (entry["version"], entry["digest"]) == ("1.0.0", edition.digest)
    assert entry["changes"] == {
        "version": "1.1.0", "systems": ["bm25", "new"], "depth": 10, "pairs judged": 4,
        "positive": 2, "negative": 1, "disputed": 1,
    }  # fmt: skip
    assert newer.extra["seed"] == 5


def test_statistics_count_the_new_labels(folder, tmp_path):
    before = {"positives per query": "1 to 1, mean 1.00", "labelled pairs in the corpus": 4, "clusters": 3}
    newer = extended(folder, tmp_path / "out", statistics=before)
    assert newer.extra["statistics"] == {
        "positives per query": "1 to 2, mean 1.67",
        "labelled pairs in the corpus": 7,
        "disputed pairs in the corpus": 1,
        "clusters": 3,
    }


@pytest.mark.parametrize("end", ["\n", "", "\n\n\n"], ids=["newline", "none", "blank lines"])
def test_each_version_has_a_line_of_the_card(folder, tmp_path, end):
    extended(folder, tmp_path / "one")
    card = tmp_path / "one" / "README.md"
    card.write_text(card.read_text().rstrip("\n") + end)  # as an editor leaves it
    edition = load_edition(tmp_path / "one")
    later = change("1.2.0", [Label("q2", "d5", 0)])
    write_version(edition, read_folder(edition.path).retrieval, later, tmp_path / "two", {})
    listed = [line for line in lines(tmp_path / "two" / "README.md") if line.startswith("- 1.")]
    assert [line.split(",")[0] for line in listed] == [
        "- 1.1.0: 1.0.0 and 4 pairs",
        "- 1.2.0: 1.1.0 and 1 pairs",
    ]
    assert lines(tmp_path / "two" / "README.md").count("## Versions") == 1


def test_a_last_line_without_an_end_is_not_joined_with_the_next(folder, tmp_path):
    for name in ("qrels/test.tsv", "labels.tsv"):
        (folder / name).write_text((folder / name).read_text().rstrip("\n"))
    extended(folder, tmp_path / "out")
    assert read_folder(tmp_path / "out").retrieval.qrels["q2"]["d2"] == 1


@pytest.mark.parametrize("name", ["qrels/test.tsv", "labels.tsv"])
def test_a_table_of_other_columns_is_refused(folder, tmp_path, name):
    data = read_folder(folder).retrieval
    (folder / name).write_text("query\tdocument\tscore\nq0\td0\t1\n")
    with pytest.raises(BuildError, match="has other columns than"):
        write_version(manifest(folder), data, change(), tmp_path / "out", {})


def test_an_edition_with_its_qrels_elsewhere_is_refused(folder, tmp_path):
    data = read_folder(folder).retrieval
    shutil.move(folder / "qrels" / "test.tsv", folder / "qrels" / "dev.tsv")
    with pytest.raises(BuildError, match=r"has no qrels/test\.tsv"):
        write_version(manifest(folder), data, change(), tmp_path / "out", {})
    assert not (tmp_path / "out").exists()
