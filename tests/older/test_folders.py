"""Folders of an early version, from before digests of shards, are still read and give the same results.

`written` holds a random model (one layer each), eight documents, their vectors, an exact index, and the
journal of a judge. The packaged edition has not changed since, so all tests of tasks read an old one.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from mar_st import MAR, encode_corpus
from mar_st.encode import VectorFolder
from mar_st.index import Index
from medteb_mteb.curation.judge.journal import JudgementJournal

QUERIES = ["头疼吃什么药", "感冒发热怎么办呢"]


@pytest.fixture
def written(tmp_path) -> Path:
    return Path(shutil.copytree(Path(__file__).parent / "written", tmp_path / "written"))


def test_the_model_gives_the_same_vectors(written):
    stored = np.load(written / "queries.npy")
    mar = MAR.from_pretrained(written / "model", device="cpu")
    plain = SentenceTransformer(str(written / "model"), device="cpu")
    np.testing.assert_allclose(mar.encode_queries(QUERIES), stored, atol=1e-5)
    np.testing.assert_allclose(plain.encode_query(QUERIES), stored, atol=1e-5)


def test_stored_vectors_equal_newly_encoded_ones(written):
    old = VectorFolder.open(written / "vectors")
    new = encode_corpus(written / "model", written / "corpus.jsonl", written / "new")
    assert old.ids.to_pylist() == new.ids.to_pylist() == [f"d{number}" for number in range(8)]
    np.testing.assert_allclose(old[:8], new[:8], atol=1e-5)


def test_the_index_finds_the_nearest_vectors(written):
    stored = np.load(written / "queries.npy")
    vectors = VectorFolder.open(written / "vectors")
    products = stored @ vectors[:8].T
    best = np.argsort(-products, axis=1)[:, :3]
    ids, scores = Index.open(written / "index").search(stored, 3)
    assert ids == [[f"d{number}" for number in row] for row in best.tolist()]
    np.testing.assert_allclose(scores, np.take_along_axis(products, best, axis=1), atol=1e-5)


def test_the_journal_keeps_its_grades(written):
    keys = [hashlib.sha256(b"%d" % number).digest()[:16] for number in range(5)]
    with JudgementJournal(written / "journal.sqlite") as journal:
        assert journal.grades(keys) == dict(zip(keys, "SABC", strict=False))
