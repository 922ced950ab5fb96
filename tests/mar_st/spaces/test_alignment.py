"""One query encoder for a document space: what it learns, what is written, and resuming."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.encode.encoding import encode_corpus
from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.files import locked
from mar_st.index.build import build_index
from mar_st.index.searcher import Searcher
from mar_st.model.digest import space_of
from mar_st.model.encoders import load_encoder
from mar_st.spaces import alignment as module
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.spaces.texts import DOCUMENTS, QUERIES, aligned
from tests.mar_st.teachers.endpoint import serving


@pytest.fixture
def teacher(tmp_path, document_source, files):
    modules = [*load_encoder(document_source, "document", max_length=32), Normalize()]
    model = SentenceTransformer(modules=modules, prompts={"query": "好", "document": "药"}, device="cpu")
    model.save_pretrained(str(tmp_path / "teacher"))
    return model


@pytest.mark.thorough(but=["vectors"])
@pytest.mark.parametrize("kind", ["model", "query only", "vectors"])
def test_the_result_searches_an_index_of_the_teacher(tmp_path, teacher, kind, caplog):
    corpus = tmp_path / "corpus.jsonl"
    encode_corpus(tmp_path / "teacher", corpus, tmp_path / "vectors", show_progress=False)
    build_index(tmp_path / "vectors", tmp_path / "index", corpus=corpus, kind="exact", progress=False)
    changes = {"teacher": str(tmp_path / "vectors"), "queries": None} if kind == "vectors" else {}
    aligned(tmp_path, query_only=kind == "query only", **changes)
    assert space_of(tmp_path / "out") == space_of(tmp_path / "teacher")
    with caplog.at_level("WARNING"):
        (hits,) = Searcher.open(tmp_path / "index", tmp_path / "out").search(QUERIES[:1], 3)
    assert len(hits) == 3
    assert not caplog.records


@pytest.mark.thorough
def test_a_model_gets_a_query_encoder_and_keeps_its_documents(tmp_path, teacher):
    manifest = aligned(tmp_path, epochs=60)
    result = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert result.encode_document(DOCUMENTS).tobytes() == teacher.encode_document(DOCUMENTS).tobytes()
    queries = result.encode_query(QUERIES)
    assert (queries * teacher.encode_query(QUERIES)).sum(axis=1).mean() > 0.8
    report = manifest["agreement"]["query"]
    assert report["held_out_query"] == 4
    assert report["cosine_query"] > 0.5
    assert manifest == json.loads((tmp_path / "out" / "space.json").read_text())
    assert (tmp_path / "out" / "student-metrics.jsonl").is_file()
    assert "no measure of search" in (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out.run").exists()
    loaded = MAR.from_pretrained(tmp_path / "out", device="cpu")
    np.testing.assert_allclose(loaded.encode_queries(QUERIES), queries, atol=1e-6)


@pytest.mark.thorough
def test_the_held_out_texts_are_not_trained_on(tmp_path, teacher, monkeypatch):
    seen = []
    original = module.align_to
    monkeypatch.setattr(module, "align_to", lambda *args: (seen.append(args[2]), original(*args)))
    aligned(tmp_path, epochs=1)
    texts = [set(source.texts) for source in seen[0]]
    assert [len(part) for part in texts] == [36, 58]
    assert texts[0] < set(QUERIES)


@pytest.mark.thorough
def test_dimensions_are_cut_for_both_sides(tmp_path, teacher):
    manifest = aligned(tmp_path, dim=16, epochs=1)
    assert (manifest["dim"], manifest["full_dim"]) == (16, 64)
    result = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    full = teacher.encode_document(DOCUMENTS)[:, :16]
    expected = full / np.linalg.norm(full, axis=1, keepdims=True)
    np.testing.assert_allclose(result.encode_document(DOCUMENTS), expected, atol=1e-5)
    assert result.encode_query(QUERIES).shape == (40, 16)


@pytest.mark.thorough
def test_a_given_student_keeps_its_pooling_and_gets_a_projection(tmp_path, teacher):
    torch.manual_seed(4)
    small = load_encoder((make_config("gte", 16), make_tokenizer("query")), "query", pooling="mean")
    SentenceTransformer(modules=[*small, Normalize()], device="cpu").save_pretrained(str(tmp_path / "small"))
    aligned(tmp_path, student=str(tmp_path / "small"), query_only=True, prompt="", epochs=1)
    result = MAR.from_pretrained(tmp_path / "out", routes="query", device="cpu")
    kinds = [type(part).__name__ for part in result.route_modules("query")]
    assert kinds == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert result.route_modules("query")[1].pooling_mode == "mean"
    assert result.prompts["query"] == ""
    assert not list((tmp_path / "out").glob("document_*"))


@pytest.mark.thorough
def test_unnormalised_vectors_make_a_dot_product_space(tmp_path, teacher):
    vectors = teacher.encode_document(DOCUMENTS) * np.linspace(1, 5, len(DOCUMENTS))[:, None]
    write_vectors(tmp_path / "vectors", list(map(str, range(len(DOCUMENTS)))), vectors, texts=DOCUMENTS)
    manifest = aligned(tmp_path, teacher=str(tmp_path / "vectors"), queries=None, epochs=1)
    assert (manifest["normalised"], manifest["similarity"]) == (False, "dot")
    assert list(manifest["agreement"]["query"]) == ["cosine_document", "held_out_document"]
    result = MAR.from_pretrained(tmp_path / "out", device="cpu")
    assert (result.routes, result.similarity_fn_name) == (("query",), "dot")
    np.testing.assert_allclose(np.linalg.norm(result.encode_queries(QUERIES), axis=1), 1, atol=1e-5)


@pytest.mark.thorough
def test_an_endpoint_is_asked_once(tmp_path, files):
    pytest.importorskip("openai", reason="the openai client is not installed")
    with serving() as server:
        manifest = aligned(tmp_path, teacher=f"openai:embed@{server.url}", epochs=1)
    assert sorted(server.sold) == sorted([*QUERIES, *DOCUMENTS])
    assert manifest["teacher"]["query"]["model"] == "embed"
    assert MAR.from_pretrained(tmp_path / "out", device="cpu").routes == ("query",)


@pytest.mark.thorough
def test_finished_runs_are_kept_and_other_runs_not_mixed_in(tmp_path, teacher, monkeypatch):
    first = aligned(tmp_path, epochs=1)
    monkeypatch.setattr(module, "align_to", None)
    assert aligned(tmp_path, epochs=1) == first
    with pytest.raises(MarError, match="exists and is not the result of this command"):
        aligned(tmp_path, epochs=1, seed=1)
    with pytest.raises(TypeError):
        aligned(tmp_path, out="other", epochs=1)
    (tmp_path / "other.run" / "student" / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    with pytest.raises(MarError, match="unfinished alignment with other texts or settings"):
        aligned(tmp_path, out="other", epochs=2)


def test_invalid_settings_are_refused(tmp_path, teacher, monkeypatch):
    for changes in ({"queries": None, "texts": None}, {"default_rung": "2"}):
        with pytest.raises(ValueError, match="validation error"):
            aligned(tmp_path, **changes)
    with pytest.raises(MarError, match="--dim is 65, but the teacher's vectors have 64"):
        aligned(tmp_path, dim=65)
    with pytest.raises(MarError, match="no folder"):
        aligned(tmp_path, teacher=str(tmp_path / "nowhere"))
    with pytest.raises(MarError, match="student"):
        aligned(tmp_path, student=str(tmp_path / "nowhere"))
    with locked(tmp_path / "out.run"), pytest.raises(MarError, match="Another process is writing"):
        aligned(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(MarError, match="runs in one process"):
        aligned(tmp_path)
    assert not (tmp_path / "out").exists()


def test_the_command_aligns_a_model(tmp_path, teacher, run_mar):
    code, out, err = run_mar(
        "align", "--teacher", tmp_path / "teacher", "--queries", tmp_path / "queries.jsonl", "--texts",
        tmp_path / "corpus.jsonl", "--out", tmp_path / "out", "--epochs", "1", "--batch-size", "16",
        "--temperature", "0.05", "--layers", "1", "--max-length", "32", "--query-only", "--json",
    )  # fmt: skip
    assert code == 0, err
    settings = json.loads(out)["settings"]
    assert settings["temperature"] == 0.05
    assert (tmp_path / "teacher-store").is_dir()
