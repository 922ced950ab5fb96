"""The digest of loaded modules: what the vectors depend on changes it, where they came from does not."""

from __future__ import annotations

import copy

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

from mar_st.model.encoders import load_encoder
from mar_st.model.modules_digest import modules_digest
from tests.mar_st.conftest import make_config, make_tokenizer


@pytest.fixture(scope="module")
def shared():
    torch.manual_seed(0)
    return [*load_encoder((make_config("gte"), make_tokenizer("query")), "query"), Normalize()]


@pytest.fixture
def modules(shared):
    return copy.deepcopy(shared)


def test_saving_loading_and_encoding_leave_the_digest(modules, shared, tmp_path):
    expected = modules_digest(shared)
    model = SentenceTransformer(modules=modules, device="cpu")
    model.encode(["头疼", "感冒发热咳嗽"], batch_size=2)  # sets truncation and padding of the tokenizer
    assert modules_digest(modules) == expected
    model.save_pretrained(str(tmp_path), create_model_card=False)
    assert modules_digest(list(SentenceTransformer(str(tmp_path), device="cpu"))) == expected


def _weight(modules):
    with torch.no_grad():
        next(modules[0].model.parameters()).view(-1)[0] += 1e-3


def _dtype(modules):
    modules[0].model.double()  # equal values


def _config(modules):
    modules[0].model.config.layer_norm_eps = 1e-3


def _length(modules):
    modules[0].max_seq_length = 8


def _pooling(modules):
    modules[1] = Pooling(32, "mean")


def _token(modules):
    modules[0].tokenizer.add_tokens(["新"])


@pytest.mark.parametrize("change", [_weight, _dtype, _config, _length, _pooling, _token, list.pop])
def test_whatever_changes_vectors_changes_the_digest(modules, shared, change):
    change(modules)
    assert modules_digest(modules) != modules_digest(shared)


@pytest.mark.parametrize(
    ("name", "value"), [("_name_or_path", "elsewhere"), ("use_cache", False), ("architectures", ["X"])]
)
def test_settings_of_origin_and_speed_do_not_count(modules, shared, name, value):
    setattr(modules[0].model.config, name, value)
    assert modules_digest(modules) == modules_digest(shared)


def test_a_module_without_settings_is_known_by_its_kind_and_weights():
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    second.load_state_dict(first.state_dict())
    assert modules_digest([first]) == modules_digest([second]) != modules_digest([torch.nn.Identity()])
    assert modules_digest([torch.nn.ReLU()]) != modules_digest([torch.nn.Identity()])
