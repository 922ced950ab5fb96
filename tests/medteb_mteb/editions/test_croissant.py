from __future__ import annotations

import json
import shutil

import mlcroissant as mlc
import pytest

from medteb_mteb.editions import EditionError, find_edition, load_edition, write_manifest
from medteb_mteb.editions.croissant import croissant

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
    with pytest.raises(EditionError, match="has no row"):
        croissant(load_edition(tmp_path))
    (tmp_path / "rows.jsonl").write_text("[]\n", encoding="utf-8")
    write_manifest(tmp_path, **options)
    with pytest.raises(EditionError, match="not an object"):
        croissant(load_edition(tmp_path))
