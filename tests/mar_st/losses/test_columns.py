from __future__ import annotations

import pytest
import torch
from sentence_transformers.base.losses.merged_forward import embed_columns as plain

from mar_st.losses import columns as module
from mar_st.losses.columns import embed_columns
from mar_st.model.encoders import load_encoder
from mar_st.model.mar import MAR
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼吃什么药" * (1 + 7 * (i % 5 == 3)) for i in range(24)]
QUERIES, POSITIVES, NEGATIVES = TEXTS, TEXTS[::-1], [text[1:] + "好" for text in TEXTS]


class Counting(torch.nn.Module):
    """Counts the passes and the tokens, padding included."""

    def __init__(self, model):
        super().__init__()
        self.model, self.shapes, self.tensors = model, [], []

    def forward(self, features):
        self.shapes.append(tuple(features["input_ids"].shape))
        self.tensors += [value for value in features.values() if isinstance(value, torch.Tensor)]
        return self.model(features)

    @property
    def tokens(self):
        return sum(rows * length for rows, length in self.shapes)


@pytest.fixture(params=["right", "left"])
def model(request, query_source):
    document = (make_config("qwen3", 64), make_tokenizer("document", request.param))
    mar = MAR.from_modules(load_encoder(query_source, "query"), load_encoder(document, "document"))
    return mar.eval()  # no dropout, which would be drawn in another order


@pytest.fixture
def features(model):
    sides = ("query", "document", "document")
    return [
        model.preprocess(texts, task=side) | {"task": side}
        for texts, side in zip((QUERIES, POSITIVES, NEGATIVES), sides, strict=True)
    ]


def _gradients(model, vectors):
    model.zero_grad()
    torch.manual_seed(0)
    sum((column * torch.randn_like(column)).sum() for column in vectors).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _cheap_passes(monkeypatch):
    monkeypatch.setattr(module, "PASS", 8)


def test_vectors_and_gradients_are_those_of_whole_columns(model, features, monkeypatch):
    _cheap_passes(monkeypatch)
    cut, whole = Counting(model), Counting(model)
    ours, theirs = embed_columns(cut, features), plain(whole, features)
    assert len(cut.shapes) > len(whole.shapes) == 2
    assert cut.tokens < 0.6 * whole.tokens
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    found, expected = _gradients(model, ours), _gradients(model, plain(model, features))
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-4)


def test_no_pass_gets_a_view(model, features, monkeypatch):
    """Compiled code has guards for the base of a view, so it would be recompiled for each kind of base."""
    _cheap_passes(monkeypatch)
    counting = Counting(model)
    embed_columns(counting, features[:1])
    widths = {length for _, length in counting.shapes}
    assert features[0]["input_ids"].shape[1] in widths  # of the longest texts nothing is cut off
    assert len(widths) > 1
    assert not any(tensor._is_view() for tensor in counting.tensors)
    assert all(tensor.is_contiguous() for tensor in counting.tensors)


def test_columns_of_one_length_are_one_pass(model):
    features = [model.preprocess(["头疼"] * 24, task=side) | {"task": side} for side in ("query", "document")]
    counting = Counting(model)
    embed_columns(counting, features)
    assert [rows for rows, _ in counting.shapes] == [24, 24]


def test_few_texts_and_packed_texts_are_one_pass(model, monkeypatch):
    _cheap_passes(monkeypatch)
    features = model.preprocess(["头疼", "头疼" * 20] * 3, task="query") | {"task": "query"}
    counting = Counting(model)
    embed_columns(counting, [features])
    assert len(counting.shapes) == 1
    flat = {"input_ids": torch.zeros(1, 90, dtype=torch.long), "attention_mask": torch.ones(1, 90)}
    assert not module.can_be_cut({**flat, "cu_seq_lens_q": torch.zeros(7)})


@pytest.mark.parametrize("lengths", [[9] * 24, [90] * 3 + [5] * 21, list(range(64, 0, -1))])
def test_sizes_cost_no_more_than_one_pass_and_cover_all_rows(lengths):
    sizes = module._sizes(lengths)
    assert sum(sizes) == len(lengths)
    assert min(sizes) >= module.FEWEST
    assert module._cost(lengths, sizes) <= module._cost(lengths, [len(lengths)])


def test_processes_that_train_together_make_as_many_passes(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert len(module._sizes([9] * 24)) == len(module._sizes([90] * 3 + [5] * 21)) == module.SHARED
