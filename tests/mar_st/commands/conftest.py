"""An index of texts whose vectors several query encoders share."""

from __future__ import annotations

import json

import pytest

from mar_st.encode.folder import write_vectors
from mar_st.index.build import build_index
from mar_st.model.digest import space_of
from tests.mar_st.lookup.conftest import family, fitted, make_texts, teach, texts, vectors  # noqa: F401


@pytest.fixture
def index(family, tmp_path):  # noqa: F811
    drawn = make_texts(300, seed=4)
    ids = [f"d{row}" for row in range(len(drawn))]
    space = space_of(family / "mar")
    write_vectors(tmp_path / "v", ids, teach(drawn), texts=drawn, space=space, model=str(family / "mar"))
    build_index(tmp_path / "v", tmp_path / "index", kind="hnsw", progress=False)
    rows = [{"_id": f"q{row}", "text": text} for row, text in enumerate(make_texts(40, seed=9))]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "index"
