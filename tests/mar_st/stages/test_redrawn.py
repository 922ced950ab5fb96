"""Training on positives and negatives that are drawn again for every epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mar_st.data import Triple
from mar_st.errors import MarError
from mar_st.stages import joint
from mar_st.stages.columns import read_columns
from mar_st.stages.contrastive import train_contrastive
from mar_st.stages.distill import train_distill
from mar_st.stages.joint import train_joint
from mar_st.stages.labels import with_scores
from mar_st.stages.monitor import MetricsFile
from mar_st.stages.samplers import TrainRows
from mar_st.stages.teaching import taught
from tests.mar_st.stages.helpers import TRIPLES as PAIRS
from tests.mar_st.stages.helpers import (
    apart,
    cross_encoder,
    encoder,
    mar,
    settings,
    source,
    stage,
    weights,
)
from tests.mar_st.stages.trainer_helpers import equal, records_of

TRIPLES = [
    Triple(t.query, (*t.positives, f"{t.query}看什么科", f"{t.query}挂什么号"), t.negatives) for t in PAIRS
]
OPTIONS = {"max_steps": None, "epochs": 3, "length_groups": 2}


class _Killed(BaseException):
    pass


def redrawn_source(triples=TRIPLES, **fields):
    return source(triples=triples, **{"positives": "one-per-epoch", **fields})


def trained(folder, dropout=0.2, entry=None, save_steps=1000, **fields):
    model = encoder(dropout=dropout)
    contrastive_stage = stage("contrastive", **{**OPTIONS, **fields})
    train_contrastive(
        model, [entry or redrawn_source()], contrastive_stage, settings(folder, save_steps=save_steps), {}
    )
    return weights(model)


@pytest.mark.thorough
@pytest.mark.parametrize("kill", [2, 7])
def test_a_killed_run_resumes_to_the_same_weights(tmp_path, monkeypatch, kill):
    expected = trained(tmp_path / "whole")

    def die(self, args, state, control, **kwargs):
        if state.global_step == kill:
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_step_end", die, raising=False)
        with pytest.raises(_Killed):
            trained(tmp_path / "killed", save_steps=1)
    assert equal(trained(tmp_path / "killed"), expected)


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 2])
def test_each_epoch_trains_on_other_positives(tmp_path, monkeypatch, workers):
    records = records_of(monkeypatch)
    contrastive_stage = stage("contrastive", **OPTIONS)
    train_contrastive(
        encoder(), [redrawn_source()], contrastive_stage, settings(tmp_path, workers=workers), {}
    )
    assert len(records) == 9
    positives = [text for record, _ in records for text in record.texts["positive"]]
    assert sorted(positives) == sorted(text for triple in TRIPLES for text in triple.positives)
    negatives = {text for record, _ in records for text in record.texts["negative_1"]}
    assert negatives == {text for triple in TRIPLES for text in triple.negatives}


@pytest.mark.thorough
def test_rows_without_a_choice_train_as_if_drawn_once(tmp_path):
    only = [Triple(t.query, t.positives, t.negatives[:1]) for t in PAIRS]
    redrawn = trained(tmp_path / "redrawn", entry=redrawn_source(only))
    assert equal(redrawn, trained(tmp_path / "once", entry=source(triples=only, positives="one")))


@pytest.mark.thorough
@pytest.mark.parametrize("symmetric", [False, True])
def test_stored_vectors_are_those_of_the_drawn_texts(tmp_path, symmetric):
    entry, teacher = (
        redrawn_source(symmetric=symmetric, negatives=2, prompt="query"),
        encoder("qwen3", 32, seed=7),
    )
    teacher.prompts = {"query": "查", "document": "文"}
    columns = {"qa": read_columns(entry, 3)}
    data = taught(columns, teacher, [entry], stage("distill", teacher="document"), settings(tmp_path))
    assert data["qa"].column_names == [*columns["qa"].column_names, "label"]
    rows = TrainRows(data)
    for epoch in (0, 1):
        rows.set_epoch(epoch)
        for row in rows.__getitems__([5, 0, 23]):
            texts = [row[name] for name in ("query", "positive", "negative_1", "negative_2")]
            prompts = ["查", *["查" if symmetric else "文"] * 3]
            asked = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
            expected = teacher.encode(asked, prompt="")
            np.testing.assert_allclose(row["label"].numpy(), expected, atol=1e-3)
            assert (expected @ row["label"].numpy().T).argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_stored_scores_are_those_of_the_drawn_pairs(tmp_path):
    entry, teacher = redrawn_source(), cross_encoder(tmp_path / "teacher")
    columns = {"qa": read_columns(entry, 3)}
    data = taught(
        columns, teacher, [entry], stage("distill", teacher="cross-encoder:any"), settings(tmp_path)
    )
    rows = TrainRows(data)
    for epoch in (0, 2):
        rows.set_epoch(epoch)
        for row in rows.__getitems__([5, 0, 23]):
            pairs = [(row["query"], row[name]) for name in ("positive", "negative_1")]
            expected = teacher.predict(pairs, activation_fn=torch.nn.Identity())
            np.testing.assert_allclose(row["label"].numpy(), expected, atol=1e-5)


@pytest.mark.thorough
def test_stored_and_encoded_frozen_documents_train_the_same_weights(tmp_path, monkeypatch):
    def run(name):
        model, joint_stage = mar(), stage("joint", freeze="document", **OPTIONS)
        train_joint(model, [redrawn_source()], joint_stage, settings(tmp_path / name), {})
        return weights(model)

    read = run("read")
    with monkeypatch.context() as patch:
        patch.setattr(joint, "reads_documents", lambda *_: False)
        encoded = run("encoded")
    assert apart(read, encoded, weights(mar())) < 1e-2


def test_rows_without_negatives_are_refused_with_a_teacher(tmp_path):
    some = [Triple(t.query, t.positives, t.negatives if n else ()) for n, t in enumerate(TRIPLES)]
    for positives in ("one-per-epoch", "one"):
        entry = redrawn_source(some, positives=positives, missing_negatives="batch")
        with pytest.raises(MarError, match="no stored vectors or scores to learn from"):
            train_distill(encoder(), encoder(seed=1), [entry], stage("distill"), settings(tmp_path), {})
        with pytest.raises(MarError, match="no stored vectors or scores to learn from"):
            with_scores(read_columns(entry, 3), lambda pairs: pytest.fail("asked for scores"))
    with pytest.raises(MarError, match="has no negatives but 1 are asked for"):
        read_columns(redrawn_source(some), 3)
