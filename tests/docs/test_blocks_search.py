"""Code blocks of the pages on encoding, search and serving, executed on a few texts."""

from __future__ import annotations

import shutil

import pytest

from mar_st.encode import encode_corpus
from mar_st.model.family import add_query_encoder
from mar_st.model.names import packaged_folder
from tests.docs.blocks import EXECUTED
from tests.docs.conftest import ANSWERS, ASKED, texts_of


@pytest.fixture
def searching(workspace, tmp_path):
    """A corpus, queries, and saved models under the names of the docs."""
    world = workspace
    world.swapped |= {"mar-zh": "mar", 'create(model="mar-mini"': 'create(model="encoder"'}
    departments = ("神经内科", "急诊科")
    documents = [
        {"_id": f"d{number:05d}", "title": row["text"][:4], "text": row["text"]}
        | {"department": departments[number % 2], "year": 2018 + number % 5}
        for number, row in enumerate(texts_of(ANSWERS, "d"))
    ]
    queries = texts_of(ASKED, "q")
    for folder in ("tasks/MedTEBRetrieval", "models/mar-zh/src/mar_zh/sample"):
        folder = folder.replace("mar-zh", "mar")
        world.rows(f"{folder}/corpus.jsonl", documents)
        world.rows(f"{folder}/queries.jsonl", queries)
        qrels = [f"{row['_id']}\td{number // 4 * 4:05d}\t1" for number, row in enumerate(queries)]
        world.text(f"{folder}/qrels/test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *qrels]) + "\n")
    world.rows("corpus.jsonl", documents)
    world.rows("queries.jsonl", queries)
    for name, first in (("new", "n"), ("changed", "d")):
        world.rows(
            f"{name}.jsonl",
            [{"_id": f"{first}{place:05d}", "text": text} for place, text in enumerate(ASKED)],
        )
        encode_corpus("mar-mini", f"{name}.jsonl", f"{name}-vectors")
    for name in ("mar", "model", "small", "tiny", "exported", "encoder", "runs/my-mar/model"):
        shutil.copytree(packaged_folder(), tmp_path / name)
    encode_corpus("mar-mini", "corpus.jsonl", "models/mar/src/mar_zh/sample/vectors")
    for name in ("query-4", "query-lookup"):
        add_query_encoder("mar", "model", name)
    shutil.copytree(tmp_path / "mar", tmp_path / "ladder")
    world.names |= {
        "questions": [row["text"] for row in queries],
        "texts": [row["text"] for row in documents],
    }
    return world


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_the_pages_on_search_run(searching):
    for step in EXECUTED["search"]:
        searching.run(step)
    assert searching.names["best"].indices.shape == (1, 10)
