"""`mar serve` with the packaged model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest

from mar_st.cli import main
from mar_st.commands.serve import serve

ROOT = Path(__file__).parents[3]
TASK = ROOT / "tasks" / "MedTEBRetrieval"


@pytest.fixture
def command(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["mar", "serve", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr().err

    return call


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    from mar_st.encode import encode_corpus
    from mar_st.index import build_index

    folder = tmp_path_factory.mktemp("mini")
    rows = (TASK / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:60]
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    encode_corpus("mar-mini", folder / "corpus.jsonl", folder / "vectors", show_progress=False)
    build_index(folder / "vectors", folder / "index", kind="exact", progress=False)
    return folder / "index"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        (["nowhere", "--host", "0.0.0.0"], "--api-keys"),
        (["nowhere", "--api-keys", "nofile"], "cannot be read"),
        (["nowhere", "--port", "70000"], "--port"),
        (["index", "--encoder", "./no-model"], "no-model"),
    ],
)
def test_invalid_arguments_are_one_line(command, index, monkeypatch, arguments, said):
    monkeypatch.chdir(index.parent)
    monkeypatch.delenv("MAR_API_KEYS", raising=False)
    code, error = command(*(["--port", "0"] if "--port" not in arguments else []), *arguments)
    assert code == 2
    assert said in error
    assert len([line for line in error.splitlines() if line.startswith("mar: error:")]) == 1


def test_a_file_of_keys_is_passed_on_to_be_read_again_and_a_pipe_is_read_once(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("mar_st.serve.launch.run", lambda *given, **_: seen.append(given[2].api_keys))
    file = tmp_path / "keys"
    file.write_text("a-key-of-enough-characters\n")
    file.chmod(0o600)
    serve("index", api_keys=file)
    reader, writer = os.pipe()
    os.write(writer, file.read_bytes())
    os.close(writer)
    serve("index", api_keys=Path(f"/dev/fd/{reader}"))
    os.close(reader)
    assert seen == [file, ("a-key-of-enough-characters",)]


def test_a_taken_port_is_one_line(command, index):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, error = command(index, "--port", taken.getsockname()[1])
    assert (code, "in use" in error) == (2, True)


@pytest.fixture
def start(index):
    """Starts `mar serve` and gives its address and process."""
    running = []

    def run(*arguments):
        server = subprocess.Popen(
            [sys.executable, "-m", "mar_st.cli", "serve", str(index), *arguments, "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        running.append(server)
        return server.stdout.readline().split()[-1], server

    yield run
    for server in running:
        server.kill()
        server.communicate()


def queries(count):
    rows = (TASK / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in rows[:count]]


def compare(url, searcher, texts):
    with httpx.Client(base_url=url, timeout=20) as client:
        for text in texts:
            for hybrid in (False, True):
                wanted = searcher.search([text], 5, hybrid=hybrid)[0]
                content = {"query": text, "k": 5, "hybrid": hybrid}
                hits = client.post("/search", json=content).json()["hits"]
                assert [hit["id"] for hit in hits] == [hit.id for hit in wanted]
                np.testing.assert_allclose(
                    [hit["score"] for hit in hits], [hit.score for hit in wanted], atol=1e-5
                )


@pytest.mark.slow
def test_an_exported_model_answers_searches_without_torch(start, index, tmp_path):
    from mar_st.export import export
    from mar_st.index import Searcher

    export("mar-mini", tmp_path / "mini", formats=("onnx",), weight_formats=("fp32",))
    url, server = start("--encoder", str(tmp_path / "mini"), "--name", "mar-mini")
    compare(url, Searcher.open(index, tmp_path / "mini"), queries(8))
    assert "libtorch" not in Path(f"/proc/{server.pid}/maps").read_text()
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0
    log = server.stderr.read()
    assert not any(text in log for text in queries(8))


@pytest.mark.slow
def test_the_packaged_model_serves_searches_and_embeddings_of_both_sides(start, index):
    from mar_st import MAR
    from mar_st.index import Searcher

    url, _ = start("--encoder", "mar-mini", "--document-encoder", "mar-mini")
    compare(url, Searcher.open(index, "mar-mini"), queries(3))
    mar = MAR.from_pretrained(ROOT / "src" / "mar_st" / "models" / "mar-mini", device="cpu")
    document = ["脑出血是怎么引起的"]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        for kind, texts, vectors in (
            ("query", queries(3), mar.encode_queries(queries(3))),
            ("document", document, mar.encode_corpus(document)),
        ):
            embeddings = client.embeddings.create(
                model="mar-mini", input=texts, extra_body={"input_type": kind}
            )
            np.testing.assert_allclose([entry.embedding for entry in embeddings.data], vectors, atol=1e-5)
