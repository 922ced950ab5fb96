"""Files of a snapshot of English MedTEB out of raw files."""

from __future__ import annotations

import csv
import json

import mteb
import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import SOURCES, write_exams, write_medquad

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives import build_snapshot_task

MEDMCQA = "pairclassification_medmcqa_pair_classification"
MEDQA = "pairclassification_medqa_pair_classification"
MEDQUAD = "retrieval_medquad_dataset"


def test_questions_become_pairs_with_every_option(tmp_path):
    raw = write_exams(tmp_path / "raw")
    path, entry, before = build_snapshot_task(MEDMCQA, raw, tmp_path / "data")
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["sentence2"], row["label"]) for row in rows] == [
        ("Skin", "0"),
        ("Heart", "1"),
        ("Liver", "0"),
        ("Bone", "0"),
    ]
    assert {row["sentence1"] for row in rows} == {"Which organ beats?"}
    assert (entry["rows"], before) == (4, False)
    assert list(entry["made_from"]) == ["dev.json"]


@pytest.mark.thorough
def test_a_snapshot_grows_task_by_task_and_is_scored(tmp_path, monkeypatch, medteb):
    raw, medquad = write_exams(tmp_path / "raw"), write_medquad(tmp_path / "medquad")
    for name, source in ((MEDMCQA, raw), (MEDQA, raw), (MEDQUAD, medquad)):
        code, out, err = medteb("build", "relatives", name, source, tmp_path / "data", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["differs"]
    first = (tmp_path / "data" / "MedTEB-eng" / "snapshot.json").read_bytes()
    code, out, _ = medteb("build", "relatives", MEDQUAD, medquad, tmp_path / "data")
    assert "(built before)" in out
    assert "differs from the published data: raw answers" in out
    assert (tmp_path / "data" / "MedTEB-eng" / "snapshot.json").read_bytes() == first
    assert sorted(json.loads(first)["tasks"]) == [MEDMCQA, MEDQA, MEDQUAD]
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    code, out, _ = medteb(
        "run",
        "-b",
        "MedTEB(eng, v1)",
        "-m",
        "bm25-english",
        "-q",
        "--json",
        "--output-folder",
        tmp_path / "r",
    )
    assert code == 0
    report = json.loads(out)
    assert set(report["tasks"]) == {MEDMCQA, MEDQA, MEDQUAD}
    assert len(report["left_out"]) == 48


def test_options_are_those_of_the_whole_snapshot(tmp_path, monkeypatch):
    raw = write_exams(tmp_path / "raw")
    build_snapshot_task(MEDMCQA, raw, tmp_path / "data", {"threshold": "train"})
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    revision = mteb.get_task(MEDMCQA).metadata.revision
    build_snapshot_task(MEDQA, raw, tmp_path / "data", {"title": "No title"})
    options = json.loads((tmp_path / "data" / "MedTEB-eng" / "snapshot.json").read_text())["options"]
    assert options == {"title": "No title", "threshold": "train", "classifier": "frozen"}
    assert mteb.get_task(MEDMCQA).metadata.revision == revision
    with pytest.raises(BuildError, match="threshold is one of test, train; got 'validation'"):
        build_snapshot_task(MEDQA, raw, tmp_path / "data", {"threshold": "validation"})


def test_other_raw_files_are_refused(tmp_path):
    build_snapshot_task(MEDMCQA, write_exams(tmp_path / "raw"), tmp_path / "data")
    other = write_exams(tmp_path / "other", opa="Hair")
    with pytest.raises(BuildError, match="is of other raw files"):
        build_snapshot_task(MEDMCQA, other, tmp_path / "data")


@pytest.mark.parametrize("changes", [{"cop": 5}, {"opc": ""}, {"question": None}, {"opd": 7}])
def test_malformed_questions_are_one_clear_error(tmp_path, changes):
    raw = write_exams(tmp_path / "raw", **changes)
    with pytest.raises(BuildError, match="x1 has no question, four options and cop from 1 to 4"):
        build_snapshot_task(MEDMCQA, raw, tmp_path / "data")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "source", "rows", "positive"),
    [
        (MEDMCQA, "mirage/medmcqa", 4 * 4183, 4183),
        (MEDQA, "mirage/medqa", 4 * 1273, 1273),
        (MEDQUAD, "medquad", 16_359, None),
    ],
)
def test_the_real_files_have_the_documented_sizes(tmp_path, name, source, rows, positive):
    if not (SOURCES / source).is_dir():
        pytest.skip(f"no raw files of the sources at {SOURCES / source}")
    path, entry, _ = build_snapshot_task(name, SOURCES / source, tmp_path / "data")
    assert entry["rows"] == rows
    if positive is not None:
        with path.open(encoding="utf-8", newline="") as stream:
            assert sum(row["label"] == "1" for row in csv.DictReader(stream)) == positive
