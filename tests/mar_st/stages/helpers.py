"""Tiny models and data for the tests of stages."""

from __future__ import annotations

import copy
from functools import cache

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.data.sequences import Triple
from mar_st.data.training import Source
from mar_st.model.encoders import load_encoder
from mar_st.recipes.schema import ContrastiveStage, Data, DistillStage, JointStage
from mar_st.stages.trainer import StageSettings
from tests.mar_st.conftest import make_config, make_tokenizer, save_cross_encoder

WORDS = ["头疼", "发热", "咳嗽", "感冒", "高血压", "医生", "吃药", "你好"]
TRIPLES = [
    Triple(f"{a}{b}怎么办", (f"{b}{a}吃什么药好",), (f"{a}咳嗽呢{b}", f"{b}感冒呢{b}{a}"))
    for a in WORDS
    for b in WORDS[:3]
]
FAST = {"batch_size": 8, "learning_rate": 3e-3, "max_steps": 4, "temperature": 0.1, "warmup_ratio": 0.0}


def source(name="qa", triples=TRIPLES, **fields):
    return Source(Data(name=name, path="-", **{"prompt": "", **fields}), triples=list(triples))


def stage(kind, **fields):
    classes = {"contrastive": ContrastiveStage, "joint": JointStage, "distill": DistillStage}
    sides = {"side": "query"} if kind != "joint" else {}
    return classes[kind].model_validate({"stage": kind, "name": kind, **sides, **FAST, **fields})


def settings(folder, **fields):
    return StageSettings(
        folder / "run" / f"01-{fields.pop('name', 'stage')}", **{"seed": 3, "save_steps": 1000, **fields}
    )


def encoder(model_type="gte", width=16, seed=0, *, normalise=True, dropout=0.0):
    """A symmetric model; without `normalise` its vectors are of any length and it scores by dot product."""
    torch.manual_seed(seed)
    role = "query" if model_type in ("gte", "bert") else "document"
    config = make_config(model_type, width)
    if hasattr(config, "hidden_dropout_prob"):
        config.hidden_dropout_prob = dropout
    modules = load_encoder((config, make_tokenizer(role)), role)
    if not normalise:
        return SentenceTransformer(modules=modules, similarity_fn_name="dot", device="cpu")
    return SentenceTransformer(modules=[*modules, Normalize()], similarity_fn_name="cosine", device="cpu")


def cross_encoder(folder, seed=4, labels=1):
    """A cross-encoder with random weights, saved in a folder."""
    torch.manual_seed(seed)
    return CrossEncoder(str(save_cross_encoder(folder, labels, width=16)), device="cpu")


def mar(dropout=0.0, **options):
    """A MAR with random weights; each caller gets a copy, and the random state that making one leaves."""
    model, state = _made(dropout, **options)
    torch.set_rng_state(state)
    return copy.deepcopy(model)


@cache
def _made(dropout, **options):
    torch.manual_seed(1)
    config = make_config("gte", 16)
    config.hidden_dropout_prob = dropout
    sides = {"query": (config, make_tokenizer("query"))}
    sides["document"] = (make_config("qwen3", 32), make_tokenizer("document"))
    model = MAR.from_encoders(**sides, dim=16, device="cpu", **options)
    return model, torch.get_rng_state()


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def changed(model, before):
    """Names of the weights that are not what they were."""
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


def apart(first, second, start):
    """Distance of two trained models, relative to the way that training went."""
    way = torch.cat([(first[name] - start[name]).flatten() for name in start]).norm()
    return torch.cat([(first[name] - second[name]).flatten() for name in start]).norm() / way
