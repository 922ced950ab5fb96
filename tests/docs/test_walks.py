"""The walks of the architecture page are those that the commands take."""

from __future__ import annotations

import socket

import pytest

from mar_st.encode import encode_corpus
from mar_st.index import build_index
from medteb_mteb.editions import write_manifest
from tests.conftest import write_retrieval
from tests.docs.walks import check, entered, walk
from tests.mar_st.train_helpers import recipe_file  # noqa: F401 -- a fixture

WALKS = ("mar train mar-small", "A request to `mar serve`", "mteb run -t MedTEBRetrieval -m mar-mini")


@pytest.mark.parametrize("title", [*WALKS, "medteb build pipeline.yaml"])
def test_no_folder_appears_twice(title):
    folders = [row[0].rpartition("/")[0] or row[0] for row in walk(title)]
    assert len(folders) == len(set(folders)) > 2


@pytest.mark.slow
def test_training_takes_the_walk(recipe_file, tmp_path):  # noqa: F811
    files = entered("mar_st", "mar_st.cli:main", "train", str(recipe_file), "--out", "run", folder=tmp_path)
    check(WALKS[0], files)


@pytest.mark.thorough
def test_a_request_takes_the_walk(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "d", "text": "头疼可以休息"}\n', encoding="utf-8")
    encode_corpus("mar-mini", corpus, tmp_path / "vectors", show_progress=False)
    build_index(tmp_path / "vectors", tmp_path / "index", kind="exact", progress=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ("--request", "mar_st.cli:main", "serve", "index", "--encoder", "mar-mini", "--port", str(port))
    check(WALKS[1], entered("mar_st", *command, folder=tmp_path))


@pytest.mark.thorough
def test_an_evaluation_takes_the_walk(tmp_path):
    """On three queries: every call is traced, which makes the packaged edition slow."""
    folder = write_retrieval(tmp_path / "data" / "MedTEBRetrieval")
    with (folder / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.write("q1\td3\t0\n")  # a judged negative
    write_manifest(folder, task="MedTEBRetrieval", name="tiny", version="1", licence="mit", counts={})
    command = (
        "mteb.cli:main",
        "run",
        "-t",
        "MedTEBRetrieval",
        "-m",
        "medteb/mar-mini",
        "--output-folder",
        "results",
    )
    files = entered("medteb_mteb", *command, folder=tmp_path, MEDTEB_DATA=str(tmp_path / "data"))
    check(WALKS[2], files)
