from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from transformers import Trainer, TrainerCallback

from mar_st import MAR
from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.model.family import query_encoders
from mar_st.spaces import alignment as module
from mar_st.spaces.measure import table_lines
from mar_st.teachers.model import ModelTeacher
from tests.conftest import write_jsonl, write_judged
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.spaces.texts import DOCUMENTS, QUERIES, aligned


@pytest.fixture
def teacher(tmp_path, files):
    """A symmetric BERT of three layers, pooled by its mean."""
    torch.manual_seed(1)
    config = make_config("bert", 32)
    config.num_hidden_layers = 3
    modules = [
        *load_encoder((config, make_tokenizer("query")), "query", max_length=48, pooling="mean"),
        Normalize(),
    ]
    model = SentenceTransformer(modules=modules, prompts={"query": "好", "document": "药"}, device="cpu")
    model.save_pretrained(str(tmp_path / "teacher"))
    return SentenceTransformer(str(tmp_path / "teacher"), device="cpu")


@pytest.fixture
def task(tmp_path):
    for name, texts in (("queries", QUERIES[:12]), ("corpus", DOCUMENTS)):
        rows = [{"_id": f"{name[0]}{i}", "text": text} for i, text in enumerate(texts)]
        write_jsonl(tmp_path / "task" / f"{name}.jsonl", rows)
    write_judged(tmp_path / "task", [(f"q{i}", f"c{5 * i}", 1) for i in range(12)])
    return str(tmp_path / "task")


def _align(tmp_path, rungs, out="out", **changes):
    return aligned(tmp_path, out, ladder=rungs, **{"epochs": 2, **changes})


@pytest.mark.cpu  # copies of modules, which the stand-in does not support
def test_all_rungs_are_in_one_folder_that_plain_sentence_transformers_loads(tmp_path, teacher, task):
    lines = []
    manifest = _align(tmp_path, "full,1,2", evaluate=(task,), say=lines.append)
    folder = tmp_path / "out"
    assert sorted(query_encoders(folder)) == ["query", "query-1", "query-full"]
    assert list(manifest["agreement"]) == ["query-1", "query", "query-full"]
    plain = SentenceTransformer(str(folder), device="cpu")
    assert plain.encode_document(DOCUMENTS).tobytes() == teacher.encode_document(DOCUMENTS).tobytes()
    depths = {}
    for name in query_encoders(folder):
        chosen = MAR.from_pretrained(folder, query=name, routes="query", device="cpu")
        depths[name] = chosen.route_modules("query")[0].model.config.num_hidden_layers
        wanted = chosen.encode_queries(QUERIES)
        vectors = plain.encode(QUERIES, task=name, prompt_name="query")
        np.testing.assert_allclose(vectors, wanted, atol=1e-6)
        kinds = [type(module).__name__ for module in chosen.route_modules("query")]
        assert kinds == ["Transformer", "Pooling", "Normalize"]
        assert chosen.route_modules("query")[1].pooling_mode == "mean"
    assert depths == {"query": 2, "query-1": 1, "query-full": 3}
    np.testing.assert_allclose(
        plain.encode_query(QUERIES), plain.encode(QUERIES, task="query", prompt="好"), atol=1e-6
    )
    report = json.loads((folder / "ladder.json").read_text())
    assert list(report["rungs"]) == ["1", "2", "full"]
    assert report["default"] == "2"
    full = report["rungs"]["full"]
    assert full["tasks"]["task"]["retention"] == 1.0
    assert full["tasks"]["task"]["interval"] == [1.0, 1.0]
    assert full["agreement"]["cosine_query"] == 1.0
    for row in report["rungs"].values():
        assert row["p50_ms"] > 0
        assert row["per_second"] > 0
        assert row["mib"] > 0
    sizes = [report["rungs"][name]["parameters"] for name in ("1", "2", "full")]
    layer = sum(p.numel() for p in teacher[0].model.encoder.layer[0].parameters())
    assert np.diff(sizes).tolist() == [layer, layer]
    (shown,) = (line.split() for line in lines if line.split()[:1] == ["full"])
    score = f"{full['tasks']['task']['score']:.4f}"
    assert shown[1:6] == ["query-full", score, "100.0%", "[100.0%,", "100.0%]"]
    assert any("no measure of search" in line for line in lines)
    assert not (tmp_path / "out.run").exists()


@pytest.mark.thorough
def test_a_rung_starts_nearer_to_the_teacher_with_context_means(tmp_path, teacher, monkeypatch):
    cosines = []
    for out in ("means", "copied"):
        _align(tmp_path, "2", out=out, learning_rate=1e-12, epochs=0.1)
        model = MAR.from_pretrained(tmp_path / out, routes="query", device="cpu")
        same = model.encode_queries(QUERIES) * teacher.encode_query(QUERIES)
        cosines.append(float(same.sum(axis=1).mean()))
        monkeypatch.setattr(module._Run, "_averaged", lambda self: None)
    assert cosines[0] > cosines[1] + 0.02


class StopError(Exception):
    pass


def _killed_after(number, monkeypatch):
    """Stop at the step of this number, over all trainings; return the list that the steps are added to."""
    train, steps = Trainer.train, []

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            steps.append(state.global_step)
            if len(steps) == number:
                raise StopError

    def watched(self, *arguments, **more):
        self.add_callback(Kill())
        return train(self, *arguments, **more)

    monkeypatch.setattr(Trainer, "train", watched)
    return steps


@pytest.fixture
def pairs(tmp_path):
    rows = [{"query": query, "positive": DOCUMENTS[-number]} for number, query in enumerate(QUERIES)]
    write_jsonl(tmp_path / "pairs.jsonl", [*rows, {"query": QUERIES[0], "positive": "另一个回答"}])
    return {"pairs": tmp_path / "pairs.jsonl"}


@pytest.mark.thorough
def test_with_pairs_all_rungs_but_the_copy_learn_to_find_their_documents(
    tmp_path, teacher, pairs, monkeypatch
):
    for name, value in {"PAIRS_RATE": 0.03, "PAIRS_LOOKUP_RATE": 0.03, "PAIRS_EPOCHS": 40}.items():
        monkeypatch.setattr(module, name, value)
    documents = teacher.encode_document([*DOCUMENTS, "另一个回答"])
    answers = [{-number % len(DOCUMENTS)} for number in range(len(QUERIES))]
    answers[0].add(len(DOCUMENTS))

    def found(out, name):
        model = MAR.from_pretrained(tmp_path / out, query=name, routes="query", device="cpu")
        scores = model.encode_queries(QUERIES) @ documents.T
        return sum(int(row.argmax()) in own for row, own in zip(scores, answers, strict=True))

    _align(tmp_path, "lookup,1,full", out="texts")
    _align(tmp_path, "lookup,1,full", **pairs)
    for name in ("query-lookup", "query-1"):
        assert found("out", name) > found("texts", name) + 5
    assert found("out", "query") == found("texts", "query")
    for out, held in (("texts", True), ("out", False)):  # all queries are in the pairs
        agreement = json.loads((tmp_path / out / "space.json").read_text("utf-8"))["agreement"]["query-1"]
        assert ("cosine_query" in agreement) == held
    assert {"1-metrics.jsonl", "1-pairs-metrics.jsonl"} < {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.thorough
def test_pairs_resumed_equal_uninterrupted(tmp_path, teacher, pairs, monkeypatch):
    monkeypatch.setattr(module, "SAVE_STEPS", 3)
    _align(tmp_path, "1", out="whole", **pairs)
    steps = _killed_after(10 + 4, monkeypatch)  # with pairs
    with pytest.raises(StopError):
        _align(tmp_path, "1", **pairs)
    with pytest.raises(MarError, match="unfinished alignment with other texts or settings"):
        _align(tmp_path, "1")
    steps.clear()
    _align(tmp_path, "1", **pairs)
    assert steps == [4]
    for path in (tmp_path / "whole").rglob("*.safetensors"):
        name = path.relative_to(tmp_path / "whole")
        assert (tmp_path / "out" / name).read_bytes() == path.read_bytes()


@pytest.mark.thorough
def test_resumed_equals_uninterrupted(tmp_path, teacher, monkeypatch):
    monkeypatch.setattr(module, "SAVE_STEPS", 3)
    _align(tmp_path, "1,2", out="whole")
    steps = _killed_after(10 + 7, monkeypatch)  # in the second rung
    with pytest.raises(StopError):
        _align(tmp_path, "1,2")
    run = tmp_path / "out.run"
    assert (run / "2" / "model").is_dir()
    assert not (run / "1" / "model").is_dir()
    assert list((run / "1" / "checkpoints").glob("checkpoint-6"))
    with pytest.raises(MarError, match="unfinished alignment with other texts or settings"):
        _align(tmp_path, "1,3")
    monkeypatch.setattr(ModelTeacher, "encode", None)  # its vectors are in the store
    steps.clear()
    _align(tmp_path, "1,2")
    assert steps == [7, 8, 9, 10]
    assert _align(tmp_path, "1,2")["agreement"]  # finished before, kept
    names = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.safetensors")]
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.thorough
def test_other_tasks_measure_a_finished_ladder_again_without_training(tmp_path, teacher, task, monkeypatch):
    _align(tmp_path, "lookup,full", evaluate=(task,))
    out = tmp_path / "out"
    weights = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    shutil.copytree(task, tmp_path / "other")
    write_judged(tmp_path / "other", [("q1", "c5", 1)])

    monkeypatch.setattr(module, "fit_lookup", None)  # calling it would fail
    _align(tmp_path, "lookup,full", evaluate=(task, str(tmp_path / "other")))

    report = json.loads((out / "ladder.json").read_text())
    assert set(report["rungs"]["full"]["tasks"]) == {"task", "other"}
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == weights
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "\n".join(table_lines(report)) in card


@pytest.mark.slow
def test_rungs_can_come_from_vectors(tmp_path, teacher):
    vectors = teacher.encode_document(DOCUMENTS)
    write_vectors(tmp_path / "index", list(map(str, range(len(DOCUMENTS)))), vectors, texts=DOCUMENTS)
    own = {"teacher": str(tmp_path / "index"), "queries": None}
    _align(tmp_path, "1,2", **own)
    assert query_encoders(tmp_path / "out") == ["query", "query-1"]
    assert not list((tmp_path / "out").glob("document_*"))
    with pytest.raises(MarError, match=r"provides only vectors\. Leave 'full' out"):
        _align(tmp_path, "1,full", out="other", **own)


@pytest.mark.parametrize(
    ("ladder", "message"),
    [
        ("", "--ladder is a list of 'lookup'.*got ''"),
        ("1,two", "got 'two' in '1,two'"),
        ("0", "numbers of layers from 1"),
        ("1.5", "got '1.5'"),
        ("1,²", "got '²'"),
        ("2,1,2", "names the rung 2 more than once"),
        ("1,4", "asks for 4 layers, but the teacher has 3"),
    ],
)
def test_impossible_ladders_are_refused(tmp_path, teacher, ladder, message):
    with pytest.raises(MarError, match=message):
        _align(tmp_path, ladder)
    assert not (tmp_path / "out.run").exists()


def test_rungs_with_layers_need_the_packages_of_training(tmp_path, teacher, monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MarError, match="accelerate"):
        _align(tmp_path, "lookup,1")
    assert not list(tmp_path.glob("out*"))


def test_unknown_defaults_and_tasks_are_refused(tmp_path, teacher, task):
    with pytest.raises(MarError, match="--default-rung is '3', but the rungs of the ladder are 1, 2"):
        _align(tmp_path, "1,2", default_rung="3")
    with pytest.raises(ValueError, match="No task at"):
        _align(tmp_path, "1,2", evaluate=(str(tmp_path / "nowhere"),))


@pytest.mark.thorough
def test_the_lookup_rung_is_fitted_to_the_teacher(tmp_path, teacher, task):
    del teacher
    _align(tmp_path, "lookup,1", evaluate=(task,), default_rung="1")
    assert query_encoders(tmp_path / "out") == ["query", "query-lookup"]
    chosen = MAR.from_pretrained(tmp_path / "out", query="query-lookup", routes="query", device="cpu")
    assert [type(part).__name__ for part in chosen.route_modules("query")] == ["LookupEncoder", "Normalize"]
    report = json.loads((tmp_path / "out" / "ladder.json").read_text())["rungs"]["lookup"]
    assert report["agreement"]["cosine_query"] > 0.5
    every = MAR.from_pretrained(tmp_path / "out", device="cpu")
    vectors = every.encode(QUERIES, task="query-lookup", prompt_name="query")
    np.testing.assert_allclose(vectors, chosen.encode_queries(QUERIES), atol=1e-6)
    plain = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(plain.encode_query(QUERIES), every.encode_queries(QUERIES), atol=1e-6)
