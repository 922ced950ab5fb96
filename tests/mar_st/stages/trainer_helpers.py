"""Helpers for the tests of the trainer: small encoders, data of letters, spies."""

from __future__ import annotations

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer

from mar_st import MAR
from mar_st.losses import AsymInfoNCELoss
from mar_st.model.encoders import load_encoder
from mar_st.recipes.schema import ContrastiveStage
from mar_st.stages.monitor import MetricsFile
from mar_st.stages.settings import StageSettings
from mar_st.stages.trainer import StageTrainer, fit
from tests.mar_st.conftest import ALPHABET, make_config, make_tokenizer

LETTERS = list(dict.fromkeys(ALPHABET))


def words(number, salt):
    """Distinct texts of 2 to 9 letters, the same in every process."""
    base = len(LETTERS)
    return [
        LETTERS[(i + salt) % base] + LETTERS[(i // base + salt) % base] + LETTERS[(7 * i) % base] * (i % 8)
        for i in range(number)
    ]


def pairs(rows=32, salt=0):
    return Dataset.from_dict({"query": words(rows, salt), "positive": words(rows, salt + 11)})


def encoder(dropout=0.0):
    torch.manual_seed(0)
    config = make_config("gte", 16)
    config.hidden_dropout_prob = dropout
    modules = load_encoder((config, make_tokenizer("query")), "query")
    return SentenceTransformer(modules=[*modules, Normalize()], device="cpu")


def asymmetric(dropout=0.0):
    torch.manual_seed(1)
    config = make_config("gte", 16)
    config.hidden_dropout_prob = dropout
    return MAR.from_encoders(
        query=(config, make_tokenizer("query")),
        document=(make_config("qwen3", 32), make_tokenizer("document")),
        dim=16,
        device="cpu",
    )


def make_stage(**fields):
    defaults = {"batch_size": 8, "learning_rate": 5e-3, "max_steps": 6, "temperature": 0.1}
    return ContrastiveStage(stage="contrastive", name="tiny", side="query", **{**defaults, **fields})


def make_settings(folder, **fields):
    return StageSettings(folder, **{"seed": 3, "save_steps": 1000, **fields})


ROUTES = {"query": "query", "positive": "document"}


def train(folder, model=None, data=None, loss=AsymInfoNCELoss, settings=None, arguments=None, **fields):
    model = model or encoder()
    data = data or {"a": pairs()}
    mapping = dict.fromkeys(data, ROUTES) if isinstance(model, MAR) else None
    options = {"router_mapping": mapping, **(arguments or {})}
    fit(model, data, loss(model), make_stage(**fields), make_settings(folder, **(settings or {})), **options)
    return model


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def spied(monkeypatch, take):
    """Values that `take(state, kwargs)` gives at the end of every step."""
    values = []

    def on_step_end(self, args, state, control, **kwargs):
        values.append(take(state, kwargs))

    monkeypatch.setattr(MetricsFile, "on_step_end", on_step_end, raising=False)
    return values


def checkpointed(model):
    """Return, for each encoder of a model, whether it uses gradient checkpointing."""
    return [m.model.is_activation_checkpointing for m in model.modules() if isinstance(m, Transformer)]


def records_of(monkeypatch):
    """The record of every batch that is trained on."""
    records = []
    original = StageTrainer.training_step

    def training_step(self, model, inputs, num_items_in_batch=None):
        records.append((inputs["record"], {key: inputs[key] for key in inputs if key.endswith("input_ids")}))
        return original(self, model, inputs, num_items_in_batch)

    monkeypatch.setattr(StageTrainer, "training_step", training_step)
    return records
