"""Tests of mining to a folder: the triples, the manifest, and folders that hold something else."""

from __future__ import annotations

import pytest

from mar_st.data.training import read_source
from mar_st.errors import MarError
from mar_st.mining.miner import mine_to
from mar_st.mining.rules import MineSettings
from mar_st.recipes.schema import Data
from tests.conftest import read_jsonl, write_jsonl


@pytest.fixture
def data(tmp_path, triples):
    rows = [
        {"query": t.query, "positives": t.positives, "negatives": t.negatives, "source": t.source}
        for t in triples
    ]
    return str(write_jsonl(tmp_path / "rows.jsonl", rows))


def _mine(data, out, **options):
    said = []
    settings = MineSettings(data=data, out=out, **{"models": ["bm25"], "num_negatives": 2, **options})
    return mine_to(settings, say=said.append), said


def test_the_same_call_keeps_a_finished_folder_and_others_are_refused(data, tmp_path):
    out = tmp_path / "mined"
    manifest, _ = _mine(data, out)
    before = (out / "triples.jsonl").stat()
    again, said = _mine(data, out)
    assert again == manifest
    assert said[-1].endswith("finished before, kept")
    assert (out / "triples.jsonl").stat() == before
    with pytest.raises(MarError, match="is not the result of this command"):
        _mine(data, out, num_negatives=3)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MarError, match="file exists and is not the result"):
        _mine(data, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert _mine(data, tmp_path / "empty")[0]["counts"]


def test_negatives_come_from_the_given_corpus(data, tmp_path):
    corpus = ["头疼发热吃什么药", "感冒咳嗽怎么办好", "高血压医生好呢"]
    path = write_jsonl(tmp_path / "c" / "corpus.jsonl", [{"text": text} for text in corpus])
    for number, given in enumerate((path.parent, path)):
        _mine(data, tmp_path / f"mined{number}", corpus=given)
    rows = read_jsonl(tmp_path / "mined0" / "triples.jsonl")
    source = read_source(Data(name="rows", path=data, prompt=""))
    known = {text for triple in source.triples for text in (*triple.positives, *triple.negatives)}
    mined = {text for row in rows for text in row["negatives"]}
    assert mined & set(corpus)
    assert mined <= {*corpus, *known}
    contents = [(tmp_path / f"mined{number}" / "triples.jsonl").read_bytes() for number in (0, 1)]
    assert contents[0] == contents[1]
    with pytest.raises(MarError):
        _mine(data, tmp_path / "other", corpus=tmp_path / "nowhere.jsonl")
