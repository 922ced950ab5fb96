"""Releases: an index of all documents, of which only the changed ones were encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.medteb_mteb.curation.loop.conftest import ANSWERS, texts_of, write_rows

import mar_st
from mar_st.index.searcher import Searcher
from medteb_mteb.curation.loop.release import RELEASE

MINI = Path(mar_st.__file__).parent / "models" / "mar-mini"


@pytest.fixture
def publish(tmp_path, run_step):
    """Releases mar-mini with some documents; returns the number of encoded ones."""

    def call(name, documents):
        places = {"documents": write_rows(tmp_path / f"{name}.jsonl", documents)}
        places |= {"model": str(MINI), "served": str(MINI), "releases": tmp_path / "releases"}
        return run_step(RELEASE, f"months/{name}/release", release=name, **places)["details"]["encoded"]

    return call


def found(index, vectors):
    hits = Searcher.open(str(index)).search_vectors(vectors, None, 5)
    return [[(hit.id, round(hit.score, 5)) for hit in one] for one in hits]


@pytest.mark.thorough
def test_only_changed_documents_are_encoded_and_the_index_is_that_of_all(publish, tmp_path):
    old = texts_of(("感冒", "高血压", "糖尿病"), ANSWERS, "d")
    new = {**old, "d感冒0": "感冒时多喝温水。", **texts_of(("胃炎",), ANSWERS, "d")}
    del new["d糖尿病1"]
    assert publish("2026-10", old) == len(old)
    assert publish("2026-11", new) == 4
    current = tmp_path / "releases" / "current"
    assert current.readlink() == Path("2026-11")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(8, 128)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = found(current / "index", vectors)
    (tmp_path / "releases").rename(tmp_path / "before")
    assert publish("2026-12", new) == len(new)
    assert kept == found(tmp_path / "releases" / "current" / "index", vectors)
