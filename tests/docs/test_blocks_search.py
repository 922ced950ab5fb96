"""Code blocks of the pages on encoding, search, serving and aligning, executed on a few texts."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading

import pytest
import yaml

from mar_st.encode import encode_corpus
from mar_st.errors import MarError
from mar_st.index import build_index
from mar_st.model.family import add_query_encoder
from mar_st.model.names import packaged_folder
from mar_st.serve import ServeSettings, create_app
from tests.conftest import write_jsonl, write_retrieval
from tests.docs.blocks import EXECUTED
from tests.docs.conftest import ANSWERS, ASKED, texts_of
from tests.mar_st.serve.conftest import Client
from tests.mar_st.teachers.endpoint import Fake


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
    def linked():
        """An index whose effort can be tuned: a graph."""
        shutil.rmtree("index")
        searching.command("mar index build vectors index --kind hnsw --recall 0.9")

    searching.before["mar index tune"] = linked
    for step in EXECUTED["search"]:
        searching.run(step)
    assert list(searching.folder.glob("page/*.html"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks with curl")
def test_the_pages_on_serving_run(searching):
    """`mar serve` runs in a process of its own, on a free port, until the next one starts."""
    pytest.importorskip("mar_zh", reason="its sample is served")
    folder = searching.folder
    shutil.rmtree(folder / "encoder")
    shutil.rmtree(folder / "exported")
    searching.swapped |= {
        'create(model="encoder"': 'create(model="mar-mini"',
        "--task MedTEBRetrieval": "--task tasks/MedTEBRetrieval",
        "curl ": "curl --silent --show-error --fail-with-body ",
        "serve index --query-encoder query-lookup": "serve several --query-encoder query-lookup",
    }

    def several():
        """An index of a model with several query encoders."""
        searching.command("mar encode mar corpus.jsonl several-vectors")
        searching.command("mar index build several-vectors several")

    def built(name):
        return lambda: shutil.copytree("index", name)

    searching.before |= {
        "mar serve index --query-encoder": several,
        "ln -sfn index-2024-06": built("index-2024-06"),
        "ln -sfn index-2024-07": lambda: (
            built("index-2024-07")(),
            searching.patch.setenv("KEY", (folder / "keys").read_text().strip()),
        ),
    }
    for step in EXECUTED["serving"]:
        searching.run(step)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_on_exporting_runs(searching):
    """Calibrated and automatic exports, which take minutes."""
    for step in EXECUTED["exporting"]:
        searching.run(step)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_pages_on_aligning_run(searching, encoder_folder, monkeypatch):
    """Students of one narrow layer, trained for a fifth of an epoch."""
    folder = searching.folder
    for name in ("small", "tiny", "ladder", "lookup-e5"):
        shutil.rmtree(folder / name, ignore_errors=True)
    asked, answers = texts_of(ASKED, "q"), texts_of(ANSWERS, "d")
    triples = [
        {"query": query["text"], "positive": answer["text"]}
        for query, answer in zip(asked, answers, strict=True)
    ]
    searching.rows("triples.jsonl", triples)
    write_retrieval(folder / "dev-task")
    encode_corpus("mar-mini", "corpus.jsonl", "index")
    endpoint = Fake()
    endpoint.daemon_threads = True
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    monkeypatch.setenv("MAR_ENDPOINT_KEY", "none")
    few = "--epochs 0.2 --batch-size 16 --layers 1 --width 32 --vocabulary 300 --held-out 5 --max-length 32"
    searching.swapped |= {
        "mar align": f"mar align {few}",
        "https://api.openai.com/v1": endpoint.url,
        "--dim 512": "--dim 4",
        "thenlper/gte-small-zh": str(encoder_folder),
        "STAGE/model": "mar-mini",
        "lookup.yaml": "study.yaml",
    }
    study = {
        "name": "lookup",
        "base": "mar-mini",
        "full": "full",
        "seeds": 1,
        "rows": [{"name": "full", "model": "mar-mini"}, {"name": "lookup", "model": "lookup-e5"}],
        "tasks": [{"name": "dev", "path": "dev-task"}],
    }
    searching.text("study.yaml", yaml.safe_dump(study))

    def stored():
        shutil.rmtree("index")
        searching.command("mar encode mar-mini corpus.jsonl vectors")
        searching.command("mar index build vectors index")
        monkeypatch.setenv("MAR_STORE", "teacher-store")

    searching.before["mar verify vectors"] = stored
    for step in EXECUTED["aligning"]:
        searching.run(step)
    endpoint.shutdown()
    assert (folder / "lookup-e5" / "ladder.json").is_file()


@pytest.mark.thorough
def test_one_link_switches_index_and_encoder_of_a_server(tmp_path):
    """As the section on releases in `how-to/serve.md` says; the prompt of documents makes another space."""
    for name, prompt in (("first", ""), ("second", "文档：")):
        folder = tmp_path / name
        shutil.copytree(packaged_folder(), folder / "encoder")
        config = folder / "encoder" / "config_sentence_transformers.json"
        content = json.loads(config.read_text(encoding="utf-8"))
        content["prompts"]["document"] = prompt
        config.write_text(json.dumps(content), encoding="utf-8")
        rows = [{"_id": f"{name}-{row['_id']}", "text": row["text"]} for row in texts_of(ANSWERS[:2], "d")]
        corpus = write_jsonl(folder / "corpus.jsonl", rows)
        encode_corpus(str(folder / "encoder"), str(corpus), folder / "vectors")
        build_index(folder / "vectors", folder / "index", corpus=corpus, kind="exact", progress=False)
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "index").symlink_to(tmp_path / "first" / "index")
    (tmp_path / "mixed" / "encoder").symlink_to(tmp_path / "second" / "encoder")
    live = tmp_path / "live"
    live.symlink_to("first")
    app = create_app(live / "index", ServeSettings(), encoder=live / "encoder")

    async def best():
        (answer,) = await Client(app).many(("POST", "/search", {"json": {"query": "头疼"}}))
        return answer.json()["hits"][0]["id"].partition("-")[0]

    async def play():
        seen = [await best()]
        for name in ("second", "mixed", "first"):
            live.unlink()
            live.symlink_to(name)
            try:
                await app.state.generations.reload()
            except MarError as error:
                seen.append(str(error).partition(" (")[0])
            seen.append(await best())
        await app.state.generations.close()
        return seen

    refused = "The query encoder belongs to another document space"
    assert asyncio.run(play()) == ["first", "second", refused, "second", "first"]
