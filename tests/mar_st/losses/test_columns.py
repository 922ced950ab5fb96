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
    # Where the features are; without dropout, which would be drawn in another order.
    return mar.to("cpu").eval()


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
    monkeypatch.setattr(module, "PASS_OVERHEAD_TOKENS", 8)


@pytest.mark.thorough
def test_vectors_and_gradients_are_those_of_whole_columns(model, features, monkeypatch):
    _cheap_passes(monkeypatch)
    cut, whole = Counting(model), Counting(model)
    ours, theirs = embed_columns(cut, features), plain(whole, features)
    assert len(cut.shapes) > len(whole.shapes) == 2
    assert cut.tokens < 0.6 * whole.tokens
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    gradients, expected = _gradients(model, ours), _gradients(model, plain(model, features))
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
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


class BagOfTokens(torch.nn.Module):
    """An encoder that is not told where a text begins: the sum of the embeddings of its tokens."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 8)

    def forward(self, features):
        mask = features["attention_mask"][..., None]
        return {"sentence_embedding": (self.embedding(features["input_ids"]) * mask).sum(dim=1)}


def _column(lengths, padding="right"):
    """Texts of these lengths; they are padded to the longest."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    mask = mask if padding == "right" else mask.flip(1)
    tokens = torch.randint(50, mask.shape, generator=torch.Generator().manual_seed(sum(lengths)))
    return {"input_ids": tokens, "attention_mask": mask}


def _shapes(features):
    """Rows and width of every pass, after a check of the vectors against those of whole columns."""
    bag = BagOfTokens()
    counting = Counting(bag)
    for vectors, column in zip(embed_columns(counting, features), features, strict=True):
        torch.testing.assert_close(vectors, bag(column)["sentence_embedding"], rtol=1e-4, atol=1e-4)
    return counting.shapes


@pytest.mark.parametrize("padding", ["right", "left"])
def test_no_token_is_lost_where_columns_of_two_widths_are_merged_and_cut(padding, monkeypatch):
    """Padded on the left, texts of 4 tokens end at place 10 in one column and at 4 in the other."""
    _cheap_passes(monkeypatch)
    lengths = ([4] * 8, [10] + [4] * 7, [4] * 8)
    features = [_column(of_column, padding) for of_column in lengths]
    assert _shapes(features) == [(8, 4), (4, 10), (4, 4), (4, 4), (4, 4)]


def test_a_column_with_a_prompt_length_in_a_tensor_is_one_pass(monkeypatch):
    _cheap_passes(monkeypatch)
    column = _column([40] * 4 + [4] * 20)
    assert len(_shapes([column])) > 1
    assert _shapes([{**column, "prompt_length": torch.tensor(3)}]) == [(24, 40)]
    assert _shapes([{**column, "prompt_length": torch.tensor([3])}]) == [(24, 40)]
    assert not module.can_be_cut({**column, "attention_mask": torch.ones(24, 1, 40, 40)})


def test_a_pass_of_texts_without_tokens_keeps_its_columns(monkeypatch):
    _cheap_passes(monkeypatch)
    assert _shapes([_column([8] * 4 + [0] * 4)]) == [(4, 8), (4, 8)]


def test_processes_that_train_together_make_as_many_passes(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert (
        len(module._sizes([9] * 24)) == len(module._sizes([90] * 3 + [5] * 21)) == module.DISTRIBUTED_PASSES
    )
