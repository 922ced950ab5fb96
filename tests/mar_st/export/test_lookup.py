"""Tests of exported lookup encoders: NumPy, JavaScript and the page give the vectors of the module."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.export import ExportSettings, export
from mar_st.index import Searcher, build_index
from mar_st.model.digest import space_of
from mar_st.online import EncoderError, load_query_encoder
from tests.mar_st.lookup.conftest import DIM, DOCUMENTS, family, fitted, make_texts, texts, vectors  # noqa: F401
from tests.mar_st.serve.browser import NO_BROWSER, chromium, open_page

NODE = shutil.which("node")

QUERIES = [
    *make_texts(40, seed=11),
    "",
    " \n\u3000",
    "zzz",
    "😀头疼\ud83d",
    "ＡＢＣ\u3000ﬁ½ É\u0301 İ ΑΣ",
    "abcd1234 头疼\x1c\x85发热\u200b",
    "头疼吃药" * 25_000,
]


def run(model, out, form="numpy", precision="int8", **options):
    settings = {"query_encoder": "query-lookup", "format": [form], "weight_format": [precision], **options}
    return export(ExportSettings(model=str(model), out=out, **settings))


@pytest.fixture(scope="session")
def original(family):  # noqa: F811
    return load_query_encoder(family / "mar", query="query-lookup", backend="torch")


@pytest.fixture(scope="session")
def page(family, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("page") / "out"
    run(
        family / "mar", out, "lookup-json",
        vectors=family / "vectors", documents=str(family / "corpus.jsonl"),
    )  # fmt: skip
    return out


def test_the_module_is_a_query_encoder(original, family):  # noqa: F811
    assert (original.dim, original.normalised, original.max_length) == (DIM, True, 1024)
    assert original.space == space_of(family / "mar")
    assert original.count_tokens(["", " 头  疼 ", "a" * 5000]) == [0, 3, 5000]
    vectors = original.encode(QUERIES)  # noqa: F811
    assert np.isfinite(vectors).all()
    assert original.prompts["query"]
    np.testing.assert_array_equal(vectors[:3], original.encode(QUERIES[:3], prompt_name="document"))


@pytest.mark.parametrize(("precision", "loss"), [("int8", 1e-3), ("fp16", 1e-6), ("fp32", 1e-6)])
def test_numpy_agrees_with_the_module(original, family, tmp_path, precision, loss):  # noqa: F811
    listing = run(family / "mar", tmp_path / "out", precision=precision)
    encoder = load_query_encoder(tmp_path / "out")
    vectors = encoder.encode(QUERIES)  # noqa: F811
    assert vectors.dtype == np.float32
    assert ((vectors * original.encode(QUERIES)).sum(axis=1) > 1 - loss).all()
    np.testing.assert_array_equal(np.concatenate([encoder.encode([text]) for text in QUERIES]), vectors)
    assert encoder.encode([]).shape == (0, DIM)
    assert encoder.count_tokens(QUERIES) == original.count_tokens(QUERIES)
    for name in ("dim", "space", "normalised", "max_length", "prompts"):
        assert getattr(encoder, name) == getattr(original, name)
    assert listing.model["identity"] == original.identity
    assert space_of(tmp_path / "out") == original.space
    assert load_query_encoder(tmp_path / "out", backend="numpy").identity == encoder.identity
    with pytest.raises(EncoderError, match="no prompt 'nix'"):
        encoder.encode(["头疼"], prompt_name="nix")
    with pytest.raises(EncoderError, match="backend is 'numpy', not 'onnx'"):
        load_query_encoder(tmp_path / "out", backend="onnx")


def test_it_is_loaded_without_torch(page):
    code = (
        "import sys; from mar_st.online import load_query_encoder; "
        f"print(load_query_encoder({str(page)!r}).encode(['头疼']).shape, 'torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["(1,", f"{DIM})", "False"]


def test_broken_folders_are_refused(page, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(page, folder)
    content = (folder / "lookup.bin").read_bytes()
    (folder / "lookup.bin").write_bytes(content[:-1])
    with pytest.raises(EncoderError, match=r"lookup.bin has \d+ bytes"):
        load_query_encoder(folder)
    (folder / "lookup.bin").write_bytes(content)
    settings = json.loads((folder / "export.json").read_text())
    (folder / "export.json").write_text(json.dumps(settings | {"features": settings["features"] - 1}))
    with pytest.raises(EncoderError, match="come from different exports"):
        load_query_encoder(folder)


def test_an_exported_encoder_searches_an_index(page, family, tmp_path):  # noqa: F811
    build_index(family / "vectors", tmp_path / "index")
    searcher = Searcher.open(tmp_path / "index", encoder=str(page))
    results = searcher.search(["头疼吃什么药", "高血压吃什么"], k=1)
    assert [hits[0].id for hits in results] == ["d1", "d3"]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_javascript_gives_the_vectors_of_numpy(page):
    code = """
    const fs = require("fs"), [folder] = process.argv.slice(1);
    const { LookupEncoder } = require(folder + "/search.js");
    const bytes = fs.readFileSync(folder + "/lookup.bin");
    const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    const read = (name) => JSON.parse(fs.readFileSync(folder + "/" + name));
    const encoder = new LookupEncoder(read("export.json"), read("features.json"), buffer);
    const texts = JSON.parse(fs.readFileSync(0));
    console.log(JSON.stringify(texts.map((text) => Array.from(encoder.encode(text)))));
    """
    process = subprocess.run(
        [NODE, "-e", code, str(page)], input=json.dumps(QUERIES), capture_output=True, text=True, check=True
    )
    computed = np.array(json.loads(process.stdout), dtype=np.float32)
    np.testing.assert_allclose(computed, load_query_encoder(page).encode(QUERIES), atol=1e-6)


@pytest.mark.thorough
@NO_BROWSER
def test_the_page_searches_and_shows_texts_as_text(page):
    from playwright.sync_api import expect

    class Quiet(SimpleHTTPRequestHandler):
        def do_GET(self):
            self.path = "/search.html" if self.path == "/" else self.path
            super().do_GET()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(page)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        with chromium() as browser, open_page(browser, address) as tab:
            expect(tab.locator("#status")).to_contain_text("4 篇文档")
            tab.fill("#query", "感冒发热怎么办")
            tab.press("#query", "Enter")
            expect(tab.locator("#hits li")).to_have_count(4)
            assert tab.locator("#hits li .text").first.inner_text() == DOCUMENTS[1]["text"]
            assert tab.locator("#hits img, #hits b").count() == 0
            assert "<b>高血压</b>" in tab.locator("#hits h2").all_inner_texts()
    finally:
        server.shutdown()
        server.server_close()


def test_mismatched_inputs_are_refused(family, tmp_path):  # noqa: F811
    mar, out = family / "mar", tmp_path / "out"
    both = {"vectors": family / "vectors", "documents": str(family / "corpus.jsonl")}
    cases = [
        ({"query_encoder": None}, "Transformer"),
        ({"form": "lookup-json"}, "--documents CORPUS and --vectors"),
        (both, "needs documents to search"),
        ({"form": "lookup-json", "precision": "fp16", **both}, "reads int8"),
        ({"precision": "bf16"}, "int8, fp16, fp32"),
    ]
    for options, message in cases:
        with pytest.raises(MarError, match=message):
            run(mar, out, **options)
    write_vectors(tmp_path / "other", ["d1"], np.ones((1, DIM), np.float32), space="b" * 64)
    write_vectors(tmp_path / "few", ["d1"], np.ones((1, DIM), np.float32), space=space_of(mar))
    for folder, message in (("other", "of the document space"), ("few", "3 of 4 documents")):
        with pytest.raises(MarError, match=message):
            run(mar, out, "lookup-json", documents=both["documents"], vectors=tmp_path / folder)
    assert not out.exists()


@pytest.mark.thorough
def test_the_command_reports_its_output(family, tmp_path):  # noqa: F811
    base = ["export", str(family / "mar"), str(tmp_path / "out"), "--query-encoder", "query-lookup"]
    result = CliRunner().invoke(app, [*base, "--format", "numpy"])
    assert result.exit_code == 0, result.output
    assert "us a query" in result.output
    again = CliRunner().invoke(app, [*base, "--format", "numpy", "--overwrite", "--json"])
    assert json.loads(again.output)["features"] > 0
    graphs = CliRunner().invoke(app, [*base, "--overwrite"])
    assert "give --format numpy" in str(graphs.exception or "") + graphs.output
