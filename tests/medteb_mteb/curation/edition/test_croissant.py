from __future__ import annotations

import json
import shutil

import mlcroissant as mlc
import pytest

from medteb_mteb.curation.edition.croissant import croissant
from medteb_mteb.editions import find_edition, load_edition, write_manifest
from medteb_mteb.folders.problems import FolderError

TASKS = ["MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"]


@pytest.mark.parametrize("task", TASKS)
def test_every_file_and_every_column_is_described(task):
    edition = find_edition(task)
    metadata = croissant(edition, url="https://example.org/x")
    assert metadata["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert (metadata["url"], metadata["version"]) == ("https://example.org/x", edition.version)
    assert metadata["license"] == "https://www.apache.org/licenses/LICENSE-2.0"
    assert edition.digest in metadata["identifier"]
    files = {one["@id"]: one for one in metadata["distribution"]}
    assert {path: one["sha256"] for path, one in files.items()} == {
        path: entry.sha256 for path, entry in edition.files.items()
    }
    assert all(one["contentSize"] == f"{edition.files[path].bytes} B" for path, one in files.items())
    columns = {
        (field["source"]["fileObject"]["@id"], field["source"]["extract"]["column"]): field["dataType"]
        for table in metadata["recordSet"]
        for field in table["field"]
    }
    assert {path for path, _ in columns} == set(files)
    if task == "MedTEBRetrieval":
        assert columns["qrels/test.tsv", "score"] == "sc:Integer"
        assert columns["qrels/test.tsv", "query-id"] == columns["corpus.jsonl", "text"] == "sc:Text"
    json.dumps(metadata, allow_nan=False)


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_the_reference_implementation_reads_it(task, tmp_path):
    edition = find_edition(task)
    folder = tmp_path / task
    shutil.copytree(edition.path, folder)
    (folder / "croissant.json").write_text(json.dumps(croissant(edition)), encoding="utf-8")
    dataset = mlc.Dataset(jsonld=str(folder / "croissant.json"))
    assert not dataset.metadata.issues.errors
    for table in dataset.metadata.record_sets:
        assert next(iter(dataset.records(table.uuid)))


def test_a_table_without_rows_is_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text("", encoding="utf-8")
    options = {"task": "T", "name": "n", "version": "1", "licence": "mit", "counts": {}}
    write_manifest(tmp_path, **options)
    with pytest.raises(FolderError, match=r"rows\.jsonl: the file holds no rows"):
        croissant(load_edition(tmp_path))
    (tmp_path / "rows.jsonl").write_text("[]\n", encoding="utf-8")
    write_manifest(tmp_path, **options)
    with pytest.raises(FolderError, match=r"rows\.jsonl:1: expected a JSON object, got list"):
        croissant(load_edition(tmp_path))


@pytest.fixture
def described(tmp_path):
    """The description of an edition of one table: `described("test.tsv", "a\\n1\\n")`."""

    def call(name, content, **provenance):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        if provenance:
            (tmp_path / "provenance.json").write_text(json.dumps(provenance))
        write_manifest(tmp_path, task="T", name="n", version="1", licence="mit", counts={})
        return croissant(load_edition(tmp_path))

    return call


def kinds(metadata):
    """Types by column, without their prefix."""
    (table,) = metadata["recordSet"]
    fields = table["field"]
    return {one["source"]["extract"]["column"]: one["dataType"].removeprefix("sc:") for one in fields}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ("1 2 0", "Integer"),
        ("1 -2", "Integer"),
        ("1 1.5 2", "Float"),
        ("0.5 3", "Float"),
        ("1 2 many", "Text"),
        ("one 2", "Text"),
        ("\u00b2 \u0663", "Text"),
    ],
)
def test_the_type_of_a_column_fits_all_of_its_rows(described, values, kind):
    lines = [f"{value}\t{value}\n" for value in values.split()]
    assert kinds(described("test.tsv", "query-id\tscore\n" + "".join(lines))) == {
        "query-id": "Text",
        "score": kind,
    }


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 0.5], "Float"),
        ([None, 3], "Integer"),
        ([None, None], "Text"),
        ([True, False], "Boolean"),
        ([True, 2], "Text"),
        (["1", 2], "Text"),
    ],
)
def test_null_fits_every_type_and_a_truth_value_no_number(described, values, kind):
    rows = "".join(json.dumps({"value": value}) + "\n\n" for value in values)
    assert kinds(described("test.jsonl", rows)) == {"value": kind}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test.tsv", "query-id\tscore\n", "the file holds no rows"),
        ("test.tsv", "query-id\tscore\nq1\n", r"test\.tsv:2: 1 tab-separated cells, the header has 2"),
        ("test.tsv", b"query-id\tscore\n\xff\t1\n", r"test\.tsv:2: not valid UTF-8 at byte 1"),
        ("test.jsonl", '{"score": 1}\n{"score"\n', r"test\.jsonl:2: malformed JSON"),
    ],
)
def test_a_broken_table_is_named(described, name, content, message):
    with pytest.raises(FolderError, match=message):
        described(name, content)


def test_provenance_of_another_form_is_left_out(described):
    metadata = described(
        "test.tsv",
        "score\n1\n",
        consensus=[{"rule": "majority", "positive": 3, "agreement": ["alpha"]}],
        judges="everyone",
        sources=3,
    )
    (protocol,) = metadata["rai:dataAnnotationProtocol"]
    assert "rule majority" in protocol
    assert not {"rai:dataAnnotationAnalysis", "rai:machineAnnotationTools", "sc:isBasedOn"} & set(metadata)
