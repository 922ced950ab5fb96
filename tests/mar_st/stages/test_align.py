from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st import MAR
from mar_st.data.sequences import Triple
from mar_st.data.training import Source
from mar_st.errors import MarError
from mar_st.losses.alignment import AlignmentLoss
from mar_st.recipes.schema import AlignStage, Data
from mar_st.stages import align
from mar_st.stages.align import text_groups, train_align
from mar_st.stages.trainer import StageSettings, read_metrics
from mar_st.teachers.model import ModelTeacher
from mar_st.teachers.store import TeacherStore
from tests.mar_st.conftest import make_config, make_tokenizer

WORDS = ["头疼", "发热", "咳嗽", "感冒", "高血压", "医生", "吃药", "怎么办"]
QUERIES = [f"{a}{b}呢" for a in WORDS for b in WORDS[:4]]
DOCUMENTS = [f"{b}你好{a}吃什么药好" for a in WORDS for b in WORDS]


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


def test_the_query_encoder_moves_to_the_teacher(mar, sources, tmp_path):
    before = mar.encode_corpus(DOCUMENTS)
    start = float((mar.encode_queries(QUERIES, prompt="") * mar.encode_corpus(QUERIES)).sum(axis=1).mean())
    train_align(mar, sources, _stage(epochs=3), _settings(tmp_path), {})
    end = float((mar.encode_queries(QUERIES, prompt="") * mar.encode_corpus(QUERIES)).sum(axis=1).mean())
    assert end > start + 0.2
    np.testing.assert_array_equal(mar.encode_corpus(DOCUMENTS), before)
    assert {"loss_contrastive", "loss_mse"} <= set(read_metrics(tmp_path / "run/01-align/metrics.jsonl")[0])


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
    lengths = torch.cat(labels).norm(dim=-1)
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
    with pytest.raises(MarError, match=r"'texts: queries' finds no such texts in its data \(more\)"):
        text_groups(sources[1:2], _stage(texts="queries"))


def test_weights_are_shares_of_the_mixture(mar, sources, tmp_path, fit_arguments):
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
    mar, sources, tmp_path, fit_arguments, choice
):
    prompts = {"query": "医生", "STS": "药"}
    train_align(mar, sources, _stage(teacher_prompt=choice), _settings(tmp_path), prompts)
    assert fit_arguments["prompts"]["answers-queries"] == {"text": "医生"}
    assert fit_arguments["prompts"]["sts-queries"] == {"text": "药"}
    assert fit_arguments["prompts"]["more-documents"] == {}
    for name, prompt in (("answers-queries", "医生"), ("sts-queries", "药"), ("more-documents", "")):
        row = fit_arguments["data"][name][0]
        own = prompt if choice == "query" else ""
        expected = mar.encode(row["text"], task="document", prompt=own)
        np.testing.assert_allclose(row["label"][0].numpy(), expected, atol=1e-6)
        if prompt:
            other = mar.encode(row["text"], task="document", prompt="" if own else prompt)
            assert np.abs(expected - other).max() > 1e-3


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
    students, teachers = (torch.cat(vectors)[:, 0] for vectors in zip(*batches, strict=True))
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


def test_a_second_text_is_drawn_beside_each_row(mar, sources, tmp_path, fit_arguments):
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
    with pytest.raises(MarError, match=r"its data hold no documents to draw them from"):
        train_align(mar, sources[2:3], stage, _settings(tmp_path), {})


def test_a_teacher_of_another_width_is_refused(mar, sources, tmp_path, document_source):
    torch.manual_seed(2)
    narrow = MAR.from_encoders(
        query=(make_config("gte", 16), make_tokenizer("query")), document=document_source
    )
    teacher = ModelTeacher.of_documents(mar, TeacherStore(tmp_path))

    def vectors(texts, _):
        return teacher.vectors(texts, "document")

    with pytest.raises(MarError, match="have 32 dimensions, the query encoder's 16"):
        align.align_to(narrow, vectors, sources[2:3], _stage(), _settings(tmp_path), {})
