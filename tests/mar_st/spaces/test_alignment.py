from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.encode import encode_corpus
from mar_st.files.locks import alone
from mar_st.index import Searcher, build_index
from mar_st.model.digest import space_of
from mar_st.model.encoders import load_encoder
from mar_st.model.family import add_query_encoder
from mar_st.spaces import AlignSettings, SpaceError, align_space
from mar_st.spaces import alignment as module
from mar_st.teachers import ModelTeacher
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.spaces.texts import DOCUMENTS, FAST, LONG, QUERIES, silent
from tests.mar_st.teachers.endpoint import Fake


@pytest.fixture
def teacher(tmp_path, document_source):
    modules = [*load_encoder(document_source, "document", max_length=32), Normalize()]
    model = SentenceTransformer(modules=modules, prompts={"query": "好", "document": "药"}, device="cpu")
    model.save_pretrained(str(tmp_path / "teacher"))
    return model


def _align(tmp_path, files, teacher="teacher", out="out", **changes):
    options = changes.pop("options", FAST)
    queries, texts, _ = files
    spec = teacher if ":" in teacher else str(tmp_path / teacher)
    arguments = {"queries": queries, "texts": texts, "store": tmp_path / "store", "say": silent} | changes
    return align_space(spec, tmp_path / out, options=options, **arguments)


@pytest.mark.thorough(but=["vectors"])
@pytest.mark.parametrize("kind", ["model", "query only", "vectors"])
def test_the_result_searches_an_index_of_the_teacher(tmp_path, files, teacher, kind, caplog):
    del teacher
    corpus = files[1]
    encode_corpus(tmp_path / "teacher", corpus, tmp_path / "vectors", show_progress=False)
    build_index(tmp_path / "vectors", tmp_path / "index", corpus=corpus, kind="exact", progress=False)
    if kind == "vectors":
        _align(tmp_path, files, teacher="vectors", queries=None)
    else:
        _align(tmp_path, files, options=replace(FAST, query_only=kind == "query only"))
    assert space_of(tmp_path / "out") == space_of(tmp_path / "teacher")
    with caplog.at_level("WARNING"):
        (hits,) = Searcher.open(tmp_path / "index", tmp_path / "out").search(QUERIES[:1], 3)
    assert len(hits) == 3
    assert not caplog.records
    if kind == "model":
        again = encode_corpus(tmp_path / "out", corpus, tmp_path / "again", show_progress=False)
        assert again.space == space_of(tmp_path / "teacher")


@pytest.mark.thorough
def test_a_model_gets_a_query_encoder_and_keeps_its_documents(tmp_path, files, teacher):
    manifest = _align(tmp_path, files, options=LONG)
    result = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert result.encode_document(DOCUMENTS).tobytes() == teacher.encode_document(DOCUMENTS).tobytes()
    queries = result.encode_query(QUERIES)
    assert queries.shape == (40, 64)
    cosines = (queries * teacher.encode_query(QUERIES)).sum(axis=1)
    assert cosines.mean() > 0.8
    report = manifest["agreement"]["aligned"]
    assert report["held_out_query"] == 4
    assert report["cosine_query"] > 0.5
    assert 0 <= report["overlap_at_10"] <= 1
    assert manifest == json.loads((tmp_path / "out" / "space.json").read_text())
    assert (tmp_path / "out" / "align-metrics.jsonl").is_file()
    assert not (tmp_path / "out.run").exists()
    loaded = MAR.from_pretrained(tmp_path / "out", device="cpu")
    np.testing.assert_allclose(loaded.encode_queries(QUERIES), queries, atol=1e-6)
    np.testing.assert_allclose(loaded.encode_corpus(DOCUMENTS), teacher.encode_document(DOCUMENTS), atol=1e-6)


@pytest.mark.thorough
def test_the_held_out_texts_are_not_trained_on(tmp_path, files, teacher, monkeypatch):
    seen = []
    original = module.align_to
    monkeypatch.setattr(module, "align_to", lambda *args: (seen.append(args[2]), original(*args)))
    _align(tmp_path, files, options=AlignSettings(**{**vars(FAST), "epochs": 1}))
    texts = [set(source.texts) for source in seen[0]]
    assert [len(part) for part in texts] == [36, 59]
    assert texts[0] < set(QUERIES)


@pytest.mark.thorough
def test_dimensions_are_cut_for_both_sides(tmp_path, files, teacher):
    manifest = _align(tmp_path, files, options=AlignSettings(**{**vars(FAST), "dim": 16, "epochs": 1}))
    assert (manifest["dim"], manifest["full_dim"]) == (16, 64)
    result = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    full = teacher.encode_document(DOCUMENTS)[:, :16]
    expected = full / np.linalg.norm(full, axis=1, keepdims=True)
    np.testing.assert_allclose(result.encode_document(DOCUMENTS), expected, atol=1e-5)
    assert result.encode_query(QUERIES).shape == (40, 16)


@pytest.mark.thorough
def test_a_given_student_keeps_its_pooling_and_gets_a_projection(tmp_path, files, teacher):
    torch.manual_seed(4)
    small = load_encoder((make_config("gte", 16), make_tokenizer("query")), "query", pooling="mean")
    SentenceTransformer(modules=[*small, Normalize()], device="cpu").save_pretrained(str(tmp_path / "small"))
    options = AlignSettings(**{**vars(FAST), "query_only": True, "prompt": "", "epochs": 1})
    _align(tmp_path, files, student=str(tmp_path / "small"), options=options)
    result = MAR.from_pretrained(tmp_path / "out", routes="query", device="cpu")
    kinds = [type(part).__name__ for part in result.route_modules("query")]
    assert kinds == ["Transformer", "Pooling", "Dense", "Normalize"]
    assert result.route_modules("query")[1].pooling_mode == "mean"
    assert result.prompts["query"] == ""
    assert not list((tmp_path / "out").glob("document_*"))
    assert result.encode_queries("头疼").shape == (64,)


@pytest.mark.thorough
def test_a_folder_of_vectors_can_be_the_teacher(tmp_path, files, teacher):
    folder = tmp_path / "index"
    folder.mkdir()
    np.save(folder / "vectors.npy", teacher.encode_document(DOCUMENTS).astype(np.float16))
    (folder / "texts.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}"}) + "\n" for i in range(len(DOCUMENTS)))
    )
    before = {path: path.read_bytes() for path in folder.iterdir()}
    manifest = _align(tmp_path, files, teacher="index", queries=None, options=LONG)
    result = MAR.from_pretrained(tmp_path / "out", device="cpu")
    assert result.routes == ("query",)
    vectors = result.encode_queries(DOCUMENTS)
    assert (vectors * teacher.encode_document(DOCUMENTS)).sum(axis=1).mean() > 0.8
    assert manifest["agreement"]["aligned"]["overlap_queries"] == "held-out documents"
    assert manifest["teacher"]["document"]["kind"] == "folder"
    assert before == {path: path.read_bytes() for path in folder.iterdir()}
    assert not (tmp_path / "store").exists()
    with pytest.raises(SpaceError, match="exists and is not the result of this command"):
        _align(
            tmp_path, files, teacher="index", queries=None, options=AlignSettings(**{**vars(FAST), "seed": 1})
        )


@pytest.mark.thorough
def test_unnormalised_vectors_make_a_dot_product_space(tmp_path, files, teacher):
    folder = tmp_path / "index"
    folder.mkdir()
    lengths = np.linspace(1, 5, len(DOCUMENTS))[:, None]
    np.save(folder / "vectors.npy", teacher.encode_document(DOCUMENTS) * lengths)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS)
    (folder / "texts.jsonl").write_text(lines)
    options = AlignSettings(**{**vars(FAST), "epochs": 1})
    manifest = _align(tmp_path, files, teacher="index", queries=None, texts=None, options=options)
    assert (manifest["normalised"], manifest["similarity"]) == (False, "dot")
    result = MAR.from_pretrained(tmp_path / "out", device="cpu")
    assert result.similarity_fn_name == "dot"
    np.testing.assert_allclose(np.linalg.norm(result.encode_queries(QUERIES), axis=1), 1, atol=1e-5)


@pytest.mark.thorough
def test_an_endpoint_is_asked_once(tmp_path, files):
    pytest.importorskip("openai", reason="the openai client is not installed")
    server = Fake()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.failures = {2: (400, "no")}
    options = AlignSettings(**{**vars(FAST), "epochs": 1})
    spec = f"openai:embed@{server.url}"
    try:
        with pytest.raises(ValueError, match="status 400"):
            _align(tmp_path, files, teacher=spec, options=options)
        server.failures = {}
        manifest = _align(tmp_path, files, teacher=spec, options=options, refine=str(files[2]))
    finally:
        server.shutdown()
        server.server_close()
    assert sorted(server.sold) == sorted([*QUERIES, *DOCUMENTS])
    assert set(manifest["agreement"]) == {"aligned", "refined"}
    assert manifest["teacher"]["query"]["model"] == "embed"
    assert MAR.from_pretrained(tmp_path / "out", device="cpu").routes == ("query",)


@pytest.mark.thorough
def test_refined_weights_are_mixed_with_aligned_ones(tmp_path, files, teacher):
    weights = {}
    for name, share in (("plain", None), ("refined", 0.0), ("mixed", 0.25)):
        few = {"epochs": 1, "refine_epochs": 2, "refine_learning_rate": 3e-3, "refine_batch_size": 8}
        options = AlignSettings(**{**vars(FAST), **few, "refine_start_share": share or 0.0})
        refine = None if share is None else str(files[2])
        _align(tmp_path, files, out=name, refine=refine, options=options)
        model = MAR.from_pretrained(tmp_path / name, routes="query", device="cpu")
        weights[name] = {n: p.detach() for n, p in model.named_parameters()}
    assert any(not torch.equal(weights["plain"][name], weight) for name, weight in weights["refined"].items())
    for name, weight in weights["mixed"].items():
        expected = 0.25 * weights["plain"][name] + 0.75 * weights["refined"][name]
        assert torch.allclose(weight, expected, atol=1e-6), name


@pytest.mark.thorough
def test_refinement_moves_queries_to_their_documents(tmp_path, files, teacher):
    options = AlignSettings(
        **{**vars(FAST), "refine_epochs": 8, "refine_learning_rate": 3e-3, "refine_batch_size": 8}
    )
    _align(tmp_path, files, out="plain", options=options)
    _align(tmp_path, files, out="refined", refine=str(files[2]), options=options)
    documents = teacher.encode_document(DOCUMENTS[:40])
    margins = []
    for name in ("plain", "refined"):
        model = SentenceTransformer(str(tmp_path / name), device="cpu")
        scores = model.encode_query(QUERIES) @ documents.T
        margins.append(np.mean(np.diag(scores) - scores.mean(axis=1)))
        assert model.encode_document(DOCUMENTS[:40]).tobytes() == documents.tobytes()
    assert margins[1] > margins[0] + 0.02


SCRIPT = """
import os, signal, sys
from pathlib import Path
from transformers import TrainerCallback
from mar_st.spaces import AlignSettings, align_space
from mar_st.stages import trainer
from tests.mar_st.spaces.texts import FAST
import torch
torch.set_num_threads(1)

class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 7:
            os.kill(os.getpid(), signal.SIGKILL)

original = trainer._callbacks
trainer._callbacks = lambda folder: [*original(folder), Kill()]
root = Path(sys.argv[1])
align_space(str(root / "teacher"), root / "out", queries=root / "queries.jsonl", texts=root / "corpus.jsonl",
            store=root / "store", options=AlignSettings(**{**vars(FAST), "save_steps": 3}))
"""


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, files, teacher, monkeypatch):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, check=False, capture_output=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()[-2000:]
    assert list((tmp_path / "out.run" / "align" / "checkpoints").glob("checkpoint-6"))
    with monkeypatch.context() as patch:
        patch.setattr(ModelTeacher, "encode", None)  # its vectors are in the store
        options = AlignSettings(**{**vars(FAST), "save_steps": 3})
        _align(tmp_path, files, options=options)
    _align(tmp_path, files, out="whole")
    names = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.safetensors")]
    assert len(names) >= 3
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.thorough
def test_finished_runs_are_kept_and_other_runs_not_mixed_in(tmp_path, files, teacher, monkeypatch):
    options = AlignSettings(**{**vars(FAST), "epochs": 1})
    first = _align(tmp_path, files, options=options)
    monkeypatch.setattr(module, "align_to", None)
    assert _align(tmp_path, files, options=options) == first
    with pytest.raises(TypeError):
        _align(tmp_path, files, out="other", options=options)
    with pytest.raises(TypeError):  # nothing was trained, so other settings may take its place
        _align(tmp_path, files, out="other", options=FAST)
    (tmp_path / "other.run" / "align" / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    with pytest.raises(SpaceError, match="unfinished alignment with other texts or settings"):
        _align(tmp_path, files, out="other", options=options)


@pytest.mark.thorough
def test_students_of_one_space_make_a_family(tmp_path, files, teacher):
    options = AlignSettings(**{**vars(FAST), "epochs": 1})
    _align(tmp_path, files, options=options)
    small = AlignSettings(**{**vars(options), "width": 16, "query_only": True})
    _align(tmp_path, files, out="small", options=small)
    add_query_encoder(tmp_path / "out", tmp_path / "small", "query-small")
    chosen = MAR.from_pretrained(tmp_path / "out", query="query-small", routes="query", device="cpu")
    alone = MAR.from_pretrained(tmp_path / "small", device="cpu")
    np.testing.assert_allclose(chosen.encode_queries(QUERIES), alone.encode_queries(QUERIES), atol=1e-6)


def test_invalid_settings_are_refused(tmp_path, files, teacher):
    with pytest.raises(SpaceError, match="--dim is 65, but the teacher's vectors have 64"):
        _align(tmp_path, files, options=AlignSettings(dim=65))
    with pytest.raises(SpaceError, match="all loss weights are zero"):
        _align(tmp_path, files, options=AlignSettings(contrastive_weight=0, mse_weight=0))
    with pytest.raises(SpaceError, match="learning_rate: Input should be greater than 0"):
        _align(tmp_path, files, options=AlignSettings(learning_rate=-1.0))
    with pytest.raises(SpaceError, match="nothing to align on"):
        align_space(str(tmp_path / "teacher"), tmp_path / "out", store=tmp_path / "store", say=silent)
    with pytest.raises(ValueError, match="no folder"):
        _align(tmp_path, files, teacher="nowhere")
    with pytest.raises(ValueError, match="student"):
        _align(tmp_path, files, student=str(tmp_path / "nowhere"))
    assert not (tmp_path / "out").exists()


def test_the_command_aligns_a_model(tmp_path, files, teacher, run_mar):
    queries, texts, _ = files
    code, out, err = run_mar(
        "align", "--teacher", tmp_path / "teacher", "--queries", queries, "--texts", texts,
        "--out", tmp_path / "out", "--epochs", "1", "--batch-size", "16", "--temperature", "0.05",
        "--length-groups", "4", "--layers", "1", "--width", "16", "--vocabulary", "200", "--max-length", "32",
        "--query-only", "--json",
    )  # fmt: skip
    assert code == 0, err
    manifest = json.loads(out)
    assert manifest["dim"] == 64
    options = manifest["settings"]["options"]
    assert (options["temperature"], options["length_groups"]) == (0.05, 4)
    assert Path(tmp_path / "teacher-store").is_dir()


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_link_as_the_folder_of_the_result_is_refused_before_training(tmp_path, files, teacher, target):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / target)
    with pytest.raises(SpaceError, match=f"is a link; give .*, {tmp_path / target}"):
        _align(tmp_path, files)
    assert not (tmp_path / "out.run").exists()


def test_a_second_process_with_the_same_folder_is_refused(tmp_path, files, teacher):
    del teacher
    with (
        alone(tmp_path / "out.run", SpaceError),
        pytest.raises(SpaceError, match="Another process is writing"),
    ):
        _align(tmp_path, files)
    assert not (tmp_path / "out").exists()
