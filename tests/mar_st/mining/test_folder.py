"""Tests of mining to a folder: the triples, the manifest, and folders that hold something else."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from mar_st.data import read_source
from mar_st.errors import MarError
from mar_st.files.locks import alone
from mar_st.mining import MiningError, Rules
from mar_st.mining.folder import mine_to
from mar_st.recipes.schema import Data


@pytest.fixture
def entry(tmp_path, triples, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # power cuts have tests of their own
    path = tmp_path / "rows.jsonl"
    rows = [
        {"query": t.query, "positives": t.positives, "negatives": t.negatives, "source": t.source}
        for t in triples
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return Data(name="rows", path=str(path), prompt="")


def _mine(entry, out, models=("bm25",), num_negatives=2, **options):
    said = []
    manifest = mine_to(
        entry, out, list(models), rules=Rules(num_negatives=num_negatives), say=said.append, **options
    )
    return manifest, said


def test_mined_triples_keep_their_rows_and_the_manifest_names_their_content(entry, triples, tmp_path):
    manifest, _ = _mine(entry, tmp_path / "new" / "mined")
    out = tmp_path / "new" / "mined"
    assert json.loads((out / "manifest.json").read_text("utf-8")) == json.loads(json.dumps(manifest))
    assert manifest["sha256"] == hashlib.sha256((out / "triples.jsonl").read_bytes()).hexdigest()
    mined = list(read_source(Data(name="mined", path=str(out), prompt="")).triples)
    assert [(t.query, t.positives, t.source) for t in mined] == [
        (t.query, t.positives, t.source) for t in triples
    ]
    assert any(t.negatives for t in mined)
    assert [path.name for path in out.parent.iterdir()] == ["mined"]  # no work is left


def test_the_same_call_keeps_a_finished_folder_and_another_is_refused(entry, tmp_path):
    manifest, _ = _mine(entry, tmp_path / "mined")
    before = (tmp_path / "mined" / "triples.jsonl").stat()
    again, said = _mine(entry, tmp_path / "mined")
    assert again == json.loads(json.dumps(manifest))
    assert said[-1].endswith("finished before, kept")
    assert (tmp_path / "mined" / "triples.jsonl").stat() == before
    with pytest.raises(MiningError, match="was not mined from these data with these settings"):
        _mine(entry, tmp_path / "mined", num_negatives=3)


def test_a_finished_folder_with_other_triples_is_refused(entry, tmp_path):
    _mine(entry, tmp_path / "mined")
    path = tmp_path / "mined" / "triples.jsonl"
    content = path.read_bytes()
    for damaged in (None, b"", content[:-20], content + b"{}\n"):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises(MiningError, match=r"triples\.jsonl is missing or was changed after it was mined"):
            _mine(entry, tmp_path / "mined")
        path.write_bytes(content)
    assert _mine(entry, tmp_path / "mined")


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[1]", b"\xff", b'{"digest": null}'])
def test_a_damaged_manifest_is_something_else(entry, tmp_path, content):
    (tmp_path / "mined").mkdir()
    (tmp_path / "mined" / "manifest.json").write_bytes(content)
    with pytest.raises(MiningError, match="mined exists and was not mined from these data"):
        _mine(entry, tmp_path / "mined")
    assert (tmp_path / "mined" / "manifest.json").read_bytes() == content


def test_a_file_in_place_of_the_folder_is_refused_and_an_empty_folder_filled(entry, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MiningError, match="file exists and was not mined from these data"):
        _mine(entry, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert _mine(entry, tmp_path / "empty")[0]["counts"]
    assert (tmp_path / "empty" / "triples.jsonl").is_file()


@pytest.mark.parametrize("out", ["mined.jsonl", "mined.parquet", ".", "..", "new/.."])
def test_names_that_are_no_folder_of_its_own_are_refused(entry, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MiningError, match="OUT is a folder of its own"):
        _mine(entry, out)


def test_negatives_come_from_the_given_corpus(entry, tmp_path):
    corpus = ["头疼发热吃什么药", "感冒咳嗽怎么办好", "高血压医生好呢"]
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in corpus), "utf-8"
    )
    for number, given in enumerate((tmp_path, tmp_path / "corpus.jsonl")):
        _mine(entry, tmp_path / f"mined{number}", corpus=given)
    rows = [json.loads(line) for line in (tmp_path / "mined0" / "triples.jsonl").open(encoding="utf-8")]
    known = {text for triple in read_source(entry).triples for text in (*triple.positives, *triple.negatives)}
    mined = {text for row in rows for text in row["negatives"]}
    assert mined & set(corpus)
    assert mined <= {*corpus, *known}
    contents = [(tmp_path / f"mined{number}" / "triples.jsonl").read_bytes() for number in (0, 1)]
    assert contents[0] == contents[1]
    with pytest.raises(MarError, match="There is no file"):
        _mine(entry, tmp_path / "other", corpus=tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_link_as_the_folder_of_the_result_is_refused_before_mining(entry, tmp_path, target):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mined").symlink_to(tmp_path / target)
    with pytest.raises(MiningError, match=f"mined is a link; give .*, {tmp_path / target}"):
        _mine(entry, tmp_path / "mined")
    assert not (tmp_path / "mined.run").exists()


def test_a_second_process_with_the_same_folder_is_refused(entry, tmp_path):
    busy = pytest.raises(MiningError, match="Another process is writing")
    with alone(tmp_path / "mined.run", MiningError), busy:
        _mine(entry, tmp_path / "mined")
    assert not (tmp_path / "mined").exists()
