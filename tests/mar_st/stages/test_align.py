from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

from mar_st import MAR
from mar_st.data import DataError, Source, Triple
from mar_st.losses import AlignmentLoss
from mar_st.recipes.schema import AlignStage, Data
from mar_st.stages import align
from mar_st.stages.align import AlignError, text_groups, train_align, weighted
from mar_st.stages.settings import StageSettings
from mar_st.stages.trainer import fit
from mar_st.teachers import ModelTeacher
from mar_st.teachers.store import TeacherStore
from tests.mar_st.conftest import make_config, make_tokenizer

WORDS = ["头疼", "发热", "咳嗽", "感冒", "高血压", "医生", "吃药", "怎么办"]
QUERIES = [f"{a}{b}呢" for a in WORDS for b in WORDS[:4]]
DOCUMENTS = [f"{b}你好{a}吃什么药好" for a in WORDS for b in WORDS]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def sources():
    triples = [Triple(query, (DOCUMENTS[i],), (DOCUMENTS[-1 - i],)) for i, query in enumerate(QUERIES)]
    return [
        Source(Data(name="answers", path="-"), triples=triples),
        Source(Data(name="more", path="-", form="texts", role="document"), texts=DOCUMENTS[:40]),
        Source(Data(name="logs", path="-", form="texts", role="query"), texts=[*QUERIES, QUERIES[0]]),
        Source(Data(name="sts", path="-", symmetric=True, prompt="STS"), triples=triples[:16]),
    ]


def _stage(**changes):
    settings = {"stage": "align", "name": "align", "batch_size": 8, "learning_rate": 3e-3, "epochs": 1}
    return AlignStage.model_validate(settings | changes)


def _settings(folder):
    return StageSettings(folder / "run" / "01-align", seed=1, save_steps=1000)


def _losses(folder):
    rows = [json.loads(line) for line in (folder / "run/01-align/metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def test_the_query_encoder_moves_to_the_teacher(mar, sources, tmp_path):
    before = mar.encode_corpus(DOCUMENTS)
    start = float((mar.encode_queries(QUERIES, prompt="") * mar.encode_corpus(QUERIES)).sum(axis=1).mean())
    train_align(mar, sources, _stage(epochs=3), _settings(tmp_path), {})
    end = float((mar.encode_queries(QUERIES, prompt="") * mar.encode_corpus(QUERIES)).sum(axis=1).mean())
    assert end > start + 0.2
    np.testing.assert_array_equal(mar.encode_corpus(DOCUMENTS), before)
    assert {"loss_contrastive", "loss_mse"} <= set(_losses(tmp_path)[-1])


def _train(source, document, folder, sources, stage, how):
    torch.manual_seed(5)
    mar = MAR.from_encoders(query=source, document=document, device="cpu")
    how(mar, sources, stage, _settings(folder), {"query": "医生"})
    return mar.route_modules("query")[0].model.state_dict()


def _live(mar, sources, stage, settings, prompts):
    """The naive stage: the teacher's vectors are computed immediately and are in the dataset."""
    data, own, mapping = {}, {}, {}
    for group in text_groups(sources, stage):
        prompt = prompts.get(group.prompt, "") if group.role == "query" else ""
        texts = list(group.texts)
        vectors = mar.encode(texts, task="document", prompt=prompt)
        data[group.name] = Dataset.from_dict({"text": texts, "label": list(vectors)})
        own[group.name] = {"text": prompt} if group.role == "query" else {}
        mapping[group.name] = {"text": "query"}
    for module in mar.route_modules("document"):
        module.requires_grad_(False)
    fit(
        mar,
        data,
        AlignmentLoss(mar),
        stage,
        settings,
        prompts=own,
        router_mapping=mapping,
        no_duplicates=False,
    )


@pytest.mark.thorough
def test_cached_teacher_equals_live_teacher(query_source, document_source, sources, tmp_path):
    stage = _stage()
    cached = _train(query_source, document_source, tmp_path / "a", sources, stage, train_align)
    live = _train(query_source, document_source, tmp_path / "b", sources, stage, _live)
    for name, weight in cached.items():
        torch.testing.assert_close(weight, live[name], rtol=1e-4, atol=1e-5)
    other = _train(query_source, document_source, tmp_path / "c", sources, _stage(mse_weight=0), train_align)
    assert any((cached[name] - other[name]).abs().max() > 1e-3 for name in cached)


@pytest.mark.thorough
def test_the_teacher_store_is_next_to_the_run_and_reused(
    query_source, document_source, sources, tmp_path, monkeypatch
):
    monkeypatch.delenv("MAR_STORE", raising=False)
    first = _train(query_source, document_source, tmp_path, sources, _stage(), train_align)
    assert (tmp_path / "teacher-store").is_dir()

    def refuse(*args, **kwargs):
        raise AssertionError("the teacher was asked again")

    monkeypatch.setattr(ModelTeacher, "encode", refuse)
    (tmp_path / "again").mkdir()
    (tmp_path / "teacher-store").rename(tmp_path / "again" / "teacher-store")
    again = _train(query_source, document_source, tmp_path / "again", sources, _stage(), train_align)
    for name, weight in first.items():
        assert torch.equal(weight, again[name])
    with pytest.raises(AssertionError, match="asked again"):
        _train(query_source, document_source, tmp_path / "empty", sources, _stage(), train_align)


@pytest.mark.thorough
def test_the_document_route_does_not_run_in_the_loop(mar, sources, tmp_path, monkeypatch):
    calls = []
    mar.route_modules("document")[0].register_forward_hook(lambda *args: calls.append(1))
    inside = []
    monkeypatch.setattr(
        align, "fit", lambda *a, **k: (inside.append(len(calls)), fit(*a, **k), inside.append(len(calls)))
    )
    train_align(mar, sources, _stage(), _settings(tmp_path), {})
    assert inside[0] > 0
    assert inside[0] == inside[1]


@pytest.mark.thorough
def test_gradcache_trains_the_same_weights(query_source, document_source, sources, tmp_path):
    query_source[0].hidden_dropout_prob = query_source[0].attention_probs_dropout_prob = 0.0
    stage = _stage(max_steps=6)
    plain = _train(query_source, document_source, tmp_path / "a", sources, stage, train_align)
    cached_stage = _stage(max_steps=6, mini_batch_size=3)
    cached = _train(query_source, document_source, tmp_path / "b", sources, cached_stage, train_align)
    for name, weight in plain.items():
        torch.testing.assert_close(weight, cached[name], rtol=1e-3, atol=1e-4)


@pytest.mark.thorough(but=["True"])
@pytest.mark.parametrize("renormalise", [True, False])
def test_targets_are_the_unchanged_vectors_of_the_space(
    query_source, document_source, sources, tmp_path, monkeypatch, renormalise
):
    mar = MAR.from_encoders(
        query=query_source, document=document_source, renormalise=renormalise, device="cpu"
    )
    labels = []
    monkeypatch.setattr(
        AlignmentLoss, "compute_loss",
        lambda self, students, teachers: (labels.append(teachers), students.sum() * 0)[1],
    )  # fmt: skip
    train_align(mar, sources, _stage(max_steps=2), _settings(tmp_path), {})
    lengths = torch.cat(labels).norm(dim=1)
    assert bool((lengths > 0.999).all()) is renormalise
    assert float(lengths.max()) < 1.001


def test_texts_are_grouped_by_source_side_and_prompt(sources):
    groups = {group.name: group for group in text_groups(sources, _stage())}
    assert list(groups) == [
        "answers-queries", "answers-documents", "more-documents", "logs-queries", "sts-queries"
    ]  # fmt: skip
    assert groups["logs-queries"].texts == QUERIES
    assert groups["logs-queries"].prompt == "query"
    assert groups["sts-queries"].prompt == "STS"
    assert groups["more-documents"].prompt == ""
    assert len(groups["sts-queries"].texts) == 16 * 3
    assert {g.role for g in text_groups(sources, _stage(texts="queries"))} == {"query"}
    assert {g.role for g in text_groups(sources, _stage(texts="documents"))} == {"document"}
    with pytest.raises(AlignError, match=r"'texts: queries' finds no such texts in its data \(more\)"):
        text_groups(sources[1:2], _stage(texts="queries"))


def test_a_weight_that_leaves_no_text_is_refused():
    assert weighted(100, 0.01, seed=0).shape == (1,)
    with pytest.raises(DataError, match=r"A weight of 0\.004 leaves none of 100 rows.* at least 0\.01"):
        weighted(100, 0.004, seed=0)


def test_weights_are_shares_of_the_mixture(mar, sources, tmp_path, monkeypatch):
    assert weighted(4, 1.0, 0).tolist() == [0, 1, 2, 3]
    assert weighted(4, 2.5, 0)[:8].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len(weighted(4, 2.5, 0)) == len(set(weighted(4, 0.5, 0))) + 8 == 10
    fit_arguments = {}
    monkeypatch.setattr(align, "fit", lambda *args, **kwargs: fit_arguments.update(kwargs, data=args[1]))
    double = Source(sources[2].entry.model_copy(update={"weight": 2.0}), texts=sources[2].texts)
    train_align(mar, [double, sources[1]], _stage(), _settings(tmp_path), {})
    assert [len(data) for data in fit_arguments["data"].values()] == [64, 40]
    data = fit_arguments["data"]["logs-queries"]
    assert (data[0]["text"], data[32]["text"]) == (QUERIES[0], QUERIES[0])
    assert torch.equal(data[0]["label"], data[32]["label"])
    assert fit_arguments["no_duplicates"]
    train_align(mar, sources[1:2], _stage(), _settings(tmp_path), {})
    assert not fit_arguments["no_duplicates"]


@pytest.mark.parametrize("choice", ["query", "document"])
def test_the_teacher_sees_queries_with_the_prompt_that_the_stage_names(
    mar, sources, tmp_path, monkeypatch, choice
):
    fit_arguments = {}
    monkeypatch.setattr(align, "fit", lambda *args, **kwargs: fit_arguments.update(kwargs, data=args[1]))
    prompts = {"query": "医生", "STS": "药"}
    train_align(mar, sources, _stage(teacher_prompt=choice), _settings(tmp_path), prompts)
    assert fit_arguments["prompts"]["answers-queries"] == {"text": "医生"}
    assert fit_arguments["prompts"]["sts-queries"] == {"text": "药"}
    assert fit_arguments["prompts"]["more-documents"] == {}
    for name, prompt in (("answers-queries", "医生"), ("sts-queries", "药"), ("more-documents", "")):
        row = fit_arguments["data"][name][0]
        own = prompt if choice == "query" else ""
        expected = mar.encode(row["text"], task="document", prompt=own)
        np.testing.assert_allclose(row["label"].numpy(), expected, atol=1e-6)
        if prompt:
            other = mar.encode(row["text"], task="document", prompt="" if own else prompt)
            assert np.abs(expected - other).max() > 1e-3


def test_vectors_of_different_prompts_do_not_mix_in_the_store(mar, sources, tmp_path):
    store = TeacherStore(tmp_path)
    bare = ModelTeacher.of_documents(mar, store)
    texts = QUERIES[:3]
    by_prompt = [np.asarray(bare.with_query_prompt(p).vectors(texts, "query")) for p in ("", "医生", "药")]
    for prompt, vectors in zip(("", "医生", "药"), by_prompt, strict=True):
        expected = mar.encode(texts, task="document", prompt=prompt)
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert len(list(tmp_path.rglob("vectors.npy"))) == 3
    np.testing.assert_array_equal(np.asarray(bare.vectors(texts, "document")), by_prompt[0])
    assert len(list(tmp_path.rglob("vectors.npy"))) == 3


@pytest.mark.thorough(but=["True"])
@pytest.mark.parametrize("renormalise", [True, False])
def test_raw_vectors_are_those_before_the_normalisation(
    query_source, document_source, sources, tmp_path, monkeypatch, renormalise
):
    query_source[0].hidden_dropout_prob = query_source[0].attention_probs_dropout_prob = 0.0
    mar = MAR.from_encoders(
        query=query_source, document=document_source, renormalise=renormalise, device="cpu"
    )
    batches = []
    compute = AlignmentLoss.compute_loss

    def spy(self, students, teachers):
        batches.append((students.detach(), teachers))
        return compute(self, students, teachers)

    monkeypatch.setattr(AlignmentLoss, "compute_loss", spy)
    stage = _stage(
        vectors="raw", contrastive_weight=0.0, mse_weight=0.0, kl_weight=1.0, max_steps=2, learning_rate=1e-9
    )
    train_align(mar, sources[1:2], stage, _settings(tmp_path), {})
    students, teachers = (torch.cat(vectors) for vectors in zip(*batches, strict=True))
    texts = sources[1].texts
    for vectors, task in ((students, "query"), (teachers, "document")):
        assert float((vectors.norm(dim=1) - 1).abs().min()) > 0.01
        encoded = torch.from_numpy(mar.encode(texts, task=task, prompt=""))
        encoded = torch.nn.functional.normalize(encoded, dim=1)
        directions = torch.nn.functional.normalize(vectors, dim=1) @ encoded.T
        assert float(directions.max(dim=1).values.min()) > 0.999
    # Afterwards, and wherever the model encodes, vectors are normalised as before.
    mar.train()
    features = mar(mar.preprocess(texts[:2], task="query"))
    torch.testing.assert_close(features["sentence_embedding"].norm(dim=1), torch.ones(2))


def test_a_second_text_is_drawn_beside_each_row(mar, sources, tmp_path, monkeypatch):
    fit_arguments = {}
    monkeypatch.setattr(
        align, "fit", lambda *args, **kwargs: fit_arguments.update(kwargs, data=args[1], loss=args[2])
    )
    stage = _stage(texts="queries", text_weights=[0.6, 0.2])
    train_align(mar, sources[1:3], stage, _settings(tmp_path), {"query": "医生"})
    assert fit_arguments["loss"].text_weights == (0.6, 0.2)
    (name,) = fit_arguments["data"]
    rows = fit_arguments["data"][name][:]
    assert list(rows) == ["text", "second", "label"]
    assert rows["text"] == QUERIES
    assert set(rows["second"]) <= set(DOCUMENTS[:40])
    assert len(set(rows["second"])) > 5
    assert fit_arguments["router_mapping"][name] == {"text": "query", "second": "query"}
    assert fit_arguments["prompts"][name] == {"text": "医生"}
    label = rows["label"][3].numpy()
    expected = [
        mar.encode(rows["text"][3], task="document", prompt="医生"), mar.encode_corpus(rows["second"][3])
    ]  # fmt: skip
    np.testing.assert_allclose(label, np.stack(expected), atol=1e-6)
    with pytest.raises(AlignError, match=r"its data \(logs\) hold no documents to draw them from"):
        train_align(mar, sources[2:3], stage, _settings(tmp_path), {})


@pytest.mark.thorough
def test_kale_trains_on_raw_vectors_and_second_texts(mar, sources, tmp_path):
    stage = _stage(
        texts="queries", text_weights=[0.6, 0.2], vectors="raw", epochs=3,
        contrastive_weight=0.0, mse_weight=0.0, kl_weight=1.0, mini_batch_size=3,
    )  # fmt: skip
    start = float((mar.encode_queries(QUERIES, prompt="") * mar.encode_corpus(QUERIES)).sum(axis=1).mean())
    train_align(mar, sources[1:3], stage, _settings(tmp_path), {})
    end = float((mar.encode_queries(QUERIES, prompt="") * mar.encode_corpus(QUERIES)).sum(axis=1).mean())
    assert end > start + 0.1


def test_a_teacher_of_another_width_is_refused(mar, sources, tmp_path, document_source):
    torch.manual_seed(2)
    narrow = MAR.from_encoders(
        query=(make_config("gte", 16), make_tokenizer("query")), document=document_source
    )
    teacher = ModelTeacher.of_documents(mar, TeacherStore(tmp_path))
    with pytest.raises(AlignError, match="have 32 dimensions, the query encoder's 16"):
        align.align_to(narrow, lambda _: teacher, sources[2:3], _stage(), _settings(tmp_path), {})


SCRIPT = """
import sys
import torch
import torch.multiprocessing as mp
from mar_st.losses import AlignmentLoss, StoredInfoNCELoss

def gradients(students, teachers, documents, world):
    students = students.clone().requires_grad_()
    gather = world > 1
    loss = AlignmentLoss(None, cosine_weight=0.5, kl_weight=1.0, gather_across_devices=gather)
    value = loss.compute_loss(students, teachers)
    value = value + StoredInfoNCELoss(None, gather_across_devices=gather).compute_loss(students, documents)
    value.backward()
    return students.grad / world

def work(rank, file, students, teachers, documents, queue):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mine = slice(rank * 3, rank * 3 + 3)
    queue.put((rank, gradients(students[mine], teachers[mine], documents[mine], 2).numpy()))

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    students, teachers, documents = torch.randn(6, 8), torch.randn(6, 8), torch.randn(6, 2, 8)
    context = mp.get_context("fork")
    queue = context.Queue()
    workers = [
        context.Process(target=work, args=(rank, sys.argv[1], students, teachers, documents, queue))
        for rank in (0, 1)
    ]
    for worker in workers:
        worker.start()
    parts = dict(queue.get(timeout=60) for _ in workers)
    whole = gradients(students, teachers, documents, 1)
    joined = torch.cat([torch.from_numpy(parts[0]), torch.from_numpy(parts[1])])
    torch.testing.assert_close(joined, whole)
    alone = gradients(students[:3], teachers[:3], documents[:3], 1) / 2
    assert (alone - whole[:3]).abs().max() > 1e-3
    print("equal")
"""


@pytest.mark.slow
def test_two_processes_give_the_gradients_of_the_joined_batch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "rendezvous")],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert process.stdout.strip() == "equal", process.stderr
