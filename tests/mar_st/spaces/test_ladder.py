from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from transformers import TrainerCallback

from mar_st import MAR
from mar_st.files.locks import alone
from mar_st.files.packages import PackageError
from mar_st.model.encoders import load_encoder
from mar_st.model.family import query_encoders
from mar_st.modules.bigrams import BigramTransformer
from mar_st.spaces import AlignSettings, Ladder, SpaceError, align_ladder
from mar_st.spaces import ladder as module
from mar_st.spaces.rung_report import table_lines
from mar_st.stages import trainer
from mar_st.teachers import ModelTeacher
from tests.mar_st.conftest import make_config, make_tokenizer
from tests.mar_st.spaces.texts import DOCUMENTS, QUERIES, silent
from tests.mar_st.teachers.endpoint import Fake

FAST = AlignSettings(
    epochs=2, batch_size=16, learning_rate=3e-3, layers=1, width=32, vocabulary=200, max_length=32, held_out=5
)


@pytest.fixture
def teacher(tmp_path):
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
    folder = tmp_path / "task"
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("queries", QUERIES[:12]), ("corpus", DOCUMENTS)):
        rows = [json.dumps({"_id": f"{name[0]}{i}", "text": text}) + "\n" for i, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(rows))
    lines = [f"q{i}\tc{5 * i}\t1" for i in range(12)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    return str(folder)


def _align(tmp_path, files, rungs, out="out", teacher="teacher", **changes):
    options = changes.pop("options", FAST)
    own = ("layers", "embeddings", "bigrams", "default", "evaluate")
    ladder = Ladder(rungs, **{k: changes.pop(k) for k in own if k in changes})
    queries, texts, _ = files
    spec = teacher if ":" in teacher else str(tmp_path / teacher)
    arguments = {"queries": queries, "texts": texts, "store": tmp_path / "store", "say": silent} | changes
    return align_ladder(spec, tmp_path / out, ladder, options=options, **arguments)


@pytest.mark.cpu  # copies of modules, which the stand-in does not support
def test_all_rungs_are_in_one_folder_that_plain_sentence_transformers_loads(tmp_path, files, teacher, task):
    lines = []
    manifest = _align(tmp_path, files, "full,1,2", evaluate=(task,), say=lines.append)
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
        assert [type(m).__name__ for m in chosen.route_modules("query")] == [
            "Transformer",
            "Pooling",
            "Normalize",
        ]
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
    assert full["agreement"]["overlap_at_10"] == 1.0
    for row in report["rungs"].values():
        assert row["p50_ms"] > 0
        assert row["per_second"] > 0
        assert row["mib"] > 0
        assert row["effort"]["reached"]
        assert row["effort"]["recall@10"] >= report["effort"]["target"]
    assert report["effort"]["documents"] == len(DOCUMENTS)
    assert full["effort"] == report["effort"]["teacher"]
    sizes = [report["rungs"][name]["parameters"] for name in ("1", "2", "full")]
    layer = sum(p.numel() for p in teacher[0].model.encoder.layer[0].parameters())
    assert np.diff(sizes).tolist() == [layer, layer]
    assert (folder / "ladder.png").read_bytes()[:4] == b"\x89PNG"
    (line,) = (line for line in lines if line.startswith("full "))
    assert line.split()[:3] == ["full", "query-full", "1.0000"]
    assert not (tmp_path / "out.run").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("choice", "places_of"),
    [("last", {1: [2], 2: [1, 2]}), ("first", {1: [0], 2: [0, 1]}), ("spread", {1: [0], 2: [0, 2]})],
)
def test_a_rung_starts_from_the_teachers_layers_without_dropout(
    tmp_path,
    files,
    teacher,
    monkeypatch,
    choice,
    places_of,
):
    started = {}
    original = module.LadderRun._align

    def look(self, model, *rest):
        first = model.route_modules("query")[0].model
        started[first.config.num_hidden_layers] = {k: v.clone() for k, v in first.state_dict().items()}
        config = first.config
        assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.0, 0.0)
        assert {part.p for part in first.modules() if isinstance(part, torch.nn.Dropout)} == {0.0}
        return original(self, model, *rest)

    monkeypatch.setattr(module.LadderRun, "_align", look)
    options = replace(FAST, epochs=0.5)
    _align(tmp_path, files, "1,2", layers=choice, embeddings="copied", options=options)
    theirs = teacher[0].model.state_dict()
    for depth, places in places_of.items():
        for name, tensor in started[depth].items():
            parts = name.split(".")
            if "layer" in parts:
                place = parts.index("layer") + 1
                parts[place] = str(places[int(parts[place])])
            if "pooler" not in parts:
                assert torch.equal(tensor, theirs[".".join(parts)]), name
    assert teacher[0].model.config.hidden_dropout_prob == 0.1
    assert (
        MAR.from_pretrained(tmp_path / "out")[0].sub_modules["document"][0].model.config.hidden_dropout_prob
        == 0.1
    )


@pytest.mark.thorough
def test_a_rung_starts_nearer_to_the_teacher_with_context_means(tmp_path, files, teacher):
    untrained = replace(FAST, learning_rate=1e-12, epochs=0.1)
    cosines = {}
    for kind in ("context-means", "copied"):
        _align(tmp_path, files, "2", out=kind, embeddings=kind, options=untrained)
        model = MAR.from_pretrained(tmp_path / kind, routes="query", device="cpu")
        same = model.encode_queries(QUERIES) * teacher.encode_query(QUERIES)
        cosines[kind] = float(same.sum(axis=1).mean())
    assert cosines["context-means"] > cosines["copied"] + 0.02


@pytest.mark.thorough
def test_rungs_get_vectors_of_token_pairs(tmp_path, files, teacher):
    options = replace(FAST, epochs=0.1)
    _align(tmp_path, files, "1,2,full", bigrams=40, options=options)
    report = json.loads((tmp_path / "out/ladder.json").read_text())["rungs"]
    plain = SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    for name, rung in (("query", "2"), ("query-1", "1")):
        model = MAR.from_pretrained(tmp_path / "out", routes="query", query=name, device="cpu")
        encoder = model.route_modules("query")[0]
        assert isinstance(encoder, BigramTransformer)
        assert 0 < len(encoder.bigrams) <= 40
        tables = 2 * len(encoder.bigrams) * encoder.model.config.hidden_size
        parameters = sum(p.numel() for module in model.route_modules("query") for p in module.parameters())
        assert report[rung]["parameters"] == parameters + tables
        vectors = plain.encode(QUERIES, task=name, prompt_name="query")
        np.testing.assert_allclose(vectors, model.encode_queries(QUERIES), atol=1e-6)
    full = MAR.from_pretrained(tmp_path / "out", routes="query", query="query-full", device="cpu")
    assert not isinstance(full.route_modules("query")[0], BigramTransformer)
    with pytest.raises(SpaceError):  # the setting belongs to the run
        _align(tmp_path, files, "1,2,full", bigrams=20, options=options)


@pytest.mark.thorough
def test_unsupported_embeddings_are_refused_with_an_alternative(tmp_path, files):
    config = make_config("modernbert", 32)
    modules = [*load_encoder((config, make_tokenizer("query")), "query", pooling="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "modern"))
    with pytest.raises(SpaceError, match=r"ModernBertModel .* --ladder-embeddings copied"):
        _align(tmp_path, files, "1", teacher="modern")
    _align(tmp_path, files, "1", teacher="modern", embeddings="copied", options=replace(FAST, epochs=0.1))
    assert MAR.from_pretrained(tmp_path / "out", routes="query").encode_queries(["头"]).shape == (1, 32)


@pytest.mark.thorough
def test_the_rungs_come_near_to_the_teacher(tmp_path, files, teacher, task):
    cosines = []
    for out, options in (("start", replace(FAST, learning_rate=1e-9)), ("out", replace(FAST, epochs=8))):
        _align(tmp_path, files, "1", out=out, embeddings="copied", options=options, evaluate=(task,))
        model = MAR.from_pretrained(tmp_path / out, routes="query", device="cpu")
        cosines.append(
            float((model.encode_queries(QUERIES) * teacher.encode_query(QUERIES)).sum(axis=1).mean())
        )
        (row,) = json.loads((tmp_path / out / "ladder.json").read_text())["rungs"].values()
        assert 0 < row["tasks"]["task"]["score"] <= 1
    assert cosines[1] > cosines[0] + 0.1


class StopError(Exception):
    pass


@pytest.mark.thorough
def test_resumed_equals_uninterrupted(tmp_path, files, teacher, monkeypatch):
    options = replace(FAST, save_steps=3)
    _align(tmp_path, files, "1,2", out="whole", options=options)
    original, steps = trainer._callbacks, []

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            steps.append(state.global_step)
            if len(steps) == 10 + 7:  # in the second rung
                raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "_callbacks", lambda settings: [*original(settings), Kill()])
        with pytest.raises(StopError):
            _align(tmp_path, files, "1,2", options=options)
    run = tmp_path / "out.run"
    assert (run / "rung-2" / "done.json").is_file()
    assert not (run / "rung-1" / "done.json").is_file()
    assert list((run / "rung-1" / "checkpoints").glob("checkpoint-6"))
    with pytest.raises(SpaceError, match="unfinished alignment with other texts or settings"):
        _align(tmp_path, files, "1,3", options=options)
    with monkeypatch.context() as patch:
        patch.setattr(ModelTeacher, "encode", None)  # its vectors are in the store
        patch.setattr(trainer, "_callbacks", lambda settings: [*original(settings), Kill()])
        steps.clear()
        _align(tmp_path, files, "1,2", options=options)
        assert steps == [7, 8, 9, 10]
        assert _align(tmp_path, files, "2, 1", options=options)["agreement"]  # finished before, kept
    names = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.safetensors")]
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_other_tasks_measure_a_finished_ladder_again_without_training(
    tmp_path, files, teacher, task, monkeypatch
):
    _align(tmp_path, files, "lookup,full", evaluate=(task,))
    out = tmp_path / "out"
    weights = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    card = (out / "README.md").read_text(encoding="utf-8")
    (out / "README.md").write_text(card.replace("# out", "# Ours"), encoding="utf-8")
    shutil.copytree(task, tmp_path / "other")
    (tmp_path / "other" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tc5\t1")

    monkeypatch.setattr(module, "fit_lookup", None)  # calling it would fail
    manifest = _align(tmp_path, files, "lookup,full", evaluate=(task, str(tmp_path / "other")))

    assert set(manifest["settings"]["evaluate"]) == {"task", "other"}
    report = json.loads((out / "ladder.json").read_text())
    assert set(report["rungs"]["full"]["tasks"]) == {"task", "other", "average"}
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == weights
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "# Ours" in card
    assert "\n".join(table_lines(report)) in card
    assert _align(tmp_path, files, "lookup,full", evaluate=(task, str(tmp_path / "other"))) == manifest


def _stop(*_):
    raise StopError


def test_a_measurement_that_was_killed_is_repeated(tmp_path, files, teacher, task, monkeypatch):
    _align(tmp_path, files, "lookup,full")
    with monkeypatch.context() as patch:
        patch.setattr(module.rung_report, "plot", _stop)
        with pytest.raises(StopError):
            _align(tmp_path, files, "lookup,full", evaluate=(task,))
    manifest = _align(tmp_path, files, "lookup,full")
    assert manifest["settings"]["evaluate"] == {}
    report = json.loads((tmp_path / "out" / "ladder.json").read_text())
    assert report["rungs"]["full"]["tasks"] == {}


@pytest.mark.slow
def test_rungs_can_come_from_vectors_and_a_given_student(tmp_path, files, teacher):
    folder = tmp_path / "index"
    folder.mkdir()
    np.save(folder / "vectors.npy", teacher.encode_document(DOCUMENTS))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    _align(tmp_path, files, "1,2", teacher="index", queries=None, texts=None, options=replace(FAST, width=64))
    assert query_encoders(tmp_path / "out") == ["query", "query-1"]
    assert not list((tmp_path / "out").glob("document_*"))
    kinds = {}
    for name in ("query", "query-1"):
        chain = MAR.from_pretrained(tmp_path / "out", query=name, routes="query").route_modules("query")
        kinds[name] = ([type(part).__name__ for part in chain], chain[0].model.config.num_hidden_layers)
    chain = ["Transformer", "Pooling", "Dense", "Normalize"]
    assert kinds == {"query": (chain, 2), "query-1": (chain, 1)}
    _align(
        tmp_path, files, "1", out="given", teacher="index", queries=None, texts=None,
        student=str(tmp_path / "teacher"),
    )  # fmt: skip
    given = MAR.from_pretrained(tmp_path / "given", routes="query").route_modules("query")
    assert [type(part).__name__ for part in given] == ["Transformer", "Pooling", "Normalize"]
    assert given[0].model.config.num_hidden_layers == 1
    with pytest.raises(SpaceError, match=r"provides only vectors\. Leave 'full' out"):
        _align(tmp_path, files, "1,full", out="other", teacher="index", queries=None, texts=None)


@pytest.mark.thorough
def test_every_rung_of_a_cut_space_searches_the_teachers_index(tmp_path, files, teacher):
    _align(tmp_path, files, "1,full", options=replace(FAST, dim=16, epochs=0.5))
    result = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    cut = teacher.encode_query(QUERIES)[:, :16]
    np.testing.assert_allclose(
        result.encode_query(QUERIES), cut / np.linalg.norm(cut, axis=1, keepdims=True), atol=1e-5
    )  # no rung of two layers, so the largest answers
    assert result.encode(QUERIES, task="query-1", prompt="好").shape == (40, 16)


@pytest.mark.parametrize(
    ("ladder", "message"),
    [
        ("", "--ladder is a list of 'lookup'.*got ''"),
        ("1,two", "got 'two' in '1,two'"),
        ("0", "numbers of layers from 1"),
        ("1.5", "got '1.5'"),
        ("2,1,2", "names the rung 2 more than once"),
        ("1,4", "asks for 4 layers, but the teacher has 3"),
    ],
)
def test_impossible_ladders_are_refused(tmp_path, files, teacher, ladder, message):
    with pytest.raises(SpaceError, match=message):
        _align(tmp_path, files, ladder)
    assert not (tmp_path / "out.run").exists()


def test_only_rungs_with_layers_need_the_packages_of_training(tmp_path, files, teacher, monkeypatch):
    monkeypatch.setattr("mar_st.files.packages.find_spec", lambda name: None)
    with pytest.raises(PackageError, match="Training needs the package accelerate"):
        _align(tmp_path, files, "lookup,1")
    assert not list(tmp_path.glob("out*"))
    assert _align(tmp_path, files, "lookup")


def test_unknown_defaults_and_tasks_are_refused(tmp_path, files, teacher, task):
    with pytest.raises(SpaceError, match="--default-rung is '3', but the rungs of the ladder are 1, 2"):
        _align(tmp_path, files, "1,2", default="3")
    with pytest.raises(ValueError, match="No task at"):
        _align(tmp_path, files, "1,2", evaluate=(str(tmp_path / "nowhere"),))


@pytest.mark.thorough
def test_the_lookup_rung_is_fitted_to_the_teacher(tmp_path, files, teacher, task):
    del teacher
    _align(tmp_path, files, "lookup,1", evaluate=(task,), default="1")
    assert query_encoders(tmp_path / "out") == ["query", "query-lookup"]
    chosen = MAR.from_pretrained(tmp_path / "out", query="query-lookup", routes="query", device="cpu")
    assert [type(part).__name__ for part in chosen.route_modules("query")] == ["LookupEncoder", "Normalize"]
    report = json.loads((tmp_path / "out" / "ladder.json").read_text())["rungs"]["lookup"]
    assert report["agreement"]["cosine_query"] > 0.5
    assert report["parameters_without_embeddings"] < 0.2 * report["parameters"]
    every = MAR.from_pretrained(tmp_path / "out", device="cpu")
    vectors = every.encode(QUERIES, task="query-lookup", prompt_name="query")
    np.testing.assert_allclose(vectors, chosen.encode_queries(QUERIES), atol=1e-6)
    plain = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(plain.encode_query(QUERIES), every.encode_queries(QUERIES), atol=1e-6)


@pytest.mark.thorough
def test_an_endpoint_is_asked_once_for_all_rungs(tmp_path, files):
    pytest.importorskip("openai", reason="the openai client is not installed")
    server = Fake()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        options = replace(FAST, epochs=0.5)
        _align(tmp_path, files, "lookup,1,2", teacher=f"openai:embed@{server.url}", options=options)
    finally:
        server.shutdown()
        server.server_close()
    assert sorted(server.sold) == sorted([*QUERIES, *DOCUMENTS])
    assert sorted(query_encoders(tmp_path / "out")) == ["query", "query-1", "query-lookup"]


def test_a_second_process_with_the_same_folder_is_refused(tmp_path, files, teacher):
    del teacher
    with (
        alone(tmp_path / "out.run", SpaceError),
        pytest.raises(SpaceError, match="Another process is writing"),
    ):
        _align(tmp_path, files, "1")
