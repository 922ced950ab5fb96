"""GradCache by tokens: the gradients of the whole batch, in passes within the limit."""

from __future__ import annotations

import pytest
import torch

from mar_st.losses.alignment import AlignmentLoss
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.losses.score_distill import ScoreDistillLoss
from tests.mar_st.stages.helpers import mar

ROWS = 12
TEXTS = ["头疼吃什么药" * (1 + 7 * (row % 5 == 3)) + "好" * (row % 3) for row in range(ROWS)]
VECTORS = torch.nn.functional.normalize(torch.randn(ROWS, 3, 16, generator=torch.manual_seed(0)), dim=-1)
BUDGET = 60


def alignment(model, **limits):
    return AlignmentLoss(model, **limits), ("query",), VECTORS[:, 0]


def two_texts(model, **limits):
    loss = AlignmentLoss(model, cosine_weight=0.5, kl_weight=2.0, text_weights=(1.0, 0.3), **limits)
    return loss, ("query", "query"), VECTORS[:, :2]


def asym(model, **limits):
    return AsymInfoNCELoss(model, temperature=0.1, dims=(8, 16), **limits), ("query", *["document"] * 2), None


def learnt(model, **limits):
    options = {"learnable_temperature": True, "both_directions": True, "false_negative_margin": 0.1}
    loss = AsymInfoNCELoss(model, temperature=0.1, dims=(8, 16), **options, **limits)
    return loss, ("query", "document", "document"), None


def frozen(model, **limits):
    for module in model.route_modules("document"):
        module.requires_grad_(False)
    return asym(model, **limits)


def distill(model, **limits):
    return ScoreDistillLoss(model, temperature=0.1, **limits), ("query", "document", "document"), VECTORS


def distill_batch(model, **limits):
    loss = ScoreDistillLoss(model, temperature=0.1, kl_scope="batch", dims=(8, 16), **limits)
    return loss, ("query", "document", "document"), VECTORS


def features_of(model, routes):
    columns = []
    for number, route in enumerate(routes):
        texts = TEXTS[number:] + TEXTS[:number]
        columns.append({**model.preprocess(texts, task=route), "task": route})
    return columns


def step(make, *, extra=None, **limits):
    """Loss and gradients of one batch, and the shape of every pass; `extra` goes into all columns."""
    model = mar()
    loss, routes, labels = make(model, **limits)
    shapes = []
    model.register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0]["input_ids"].shape)))
    value = loss([column | (extra or {}) for column in features_of(model, routes)], labels)
    (2.5 * value).backward()
    gradients = {n: p.grad for n, p in loss.named_parameters() if p.grad is not None}
    return value.detach(), gradients, shapes


@pytest.mark.thorough(
    but=[
        "asym-limits0",
        "learnt-limits1",
        "two_texts-limits1",
        "distill-limits1",
        "alignment-limits1",
        "alignment-limits0",
        "frozen-limits1",
        "frozen-limits0",
    ]
)
@pytest.mark.parametrize("limits", [{"mini_batch_tokens": BUDGET}, {"mini_batch_size": 3}])
@pytest.mark.parametrize("make", [alignment, two_texts, asym, learnt, frozen, distill, distill_batch])
def test_gradients_are_those_of_the_whole_batch(make, limits):
    loss, expected, _ = step(make)
    cached, gradients, shapes = step(make, **limits)
    torch.testing.assert_close(cached, loss)
    assert gradients.keys() == expected.keys()
    assert any(gradient.abs().sum() > 0 for gradient in expected.values())
    for name, gradient in expected.items():
        # Gradients are up to 30, and rounded in float32.
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=1e-5)
    assert len(shapes) > 2


def test_a_pass_is_limited_by_tokens_not_rows():
    *_, shapes = step(alignment, mini_batch_tokens=BUDGET)
    *_, by_rows = step(alignment, mini_batch_size=4)
    assert all(rows * width <= BUDGET or rows == 1 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) > 4
    padded = [sum(rows * width for rows, width in passes) for passes in (shapes, by_rows)]
    assert padded[0] < 0.8 * padded[1]


def test_passes_keep_to_both_limits():
    *_, shapes = step(alignment, mini_batch_size=3, mini_batch_tokens=BUDGET)
    assert all(rows * width <= BUDGET or rows == 1 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) == 3


def test_a_pass_of_one_row_has_no_padding():
    *_, shapes = step(alignment, mini_batch_size=1)
    assert shapes == 2 * [(1, len(text) + 2) for text in TEXTS]  # [CLS], a token per character, [SEP]


class Bag(torch.nn.Module):
    """An encoder: the mean of the embeddings of a text's tokens."""

    def __init__(self, model):
        super().__init__()
        self.embedding = torch.nn.Embedding(4096, 16)
        self.similarity_fn_name, self.device = model.similarity_fn_name, model.device

    def forward(self, features):
        mask = features["attention_mask"][..., None]
        total = (self.embedding(features["input_ids"]) * mask).sum(1)
        return {"sentence_embedding": torch.nn.functional.normalize(total / mask.sum(1), dim=-1)}


def test_a_limit_on_tokens_alone_does_not_limit_the_rows():
    texts = torch.ones(100, 3, dtype=torch.long)
    loss, *_ = alignment(mar(), mini_batch_tokens=300)
    loss.model, shapes = Bag(loss.model), []
    loss.model.register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0]["input_ids"].shape)))
    loss([{"input_ids": texts, "attention_mask": texts}], torch.ones(100, 16))
    assert shapes == [(100, 3)]


class Packed(torch.nn.Module):
    """An encoder of texts laid end to end, without a mask: the sum of the embeddings of each text."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 16)
        self.passes = []

    def forward(self, features):
        lengths = features["cu_seq_lens_q"].diff().tolist()
        self.passes.append(lengths)
        texts = torch.split(features["input_ids"][0], lengths)
        return {"sentence_embedding": torch.stack([self.embedding(text).sum(dim=0) for text in texts])}


def test_packed_texts_are_cut_in_their_order_within_the_limit_of_tokens():
    model, lengths, results = Packed(), [3, 1, 2, 5, 1, 2], []
    tokens = torch.randint(50, (1, 14), generator=torch.Generator().manual_seed(0))
    ends = torch.tensor([0, *lengths]).cumsum(0)
    features = {"input_ids": tokens, "cu_seq_lens_q": ends, "max_length_q": 5}
    for limits in ({}, {"mini_batch_tokens": 5}):
        model.zero_grad()
        model.passes.clear()
        value = AlignmentLoss(model, **limits)([dict(features)], VECTORS[: len(lengths), 0])
        value.backward()
        results.append((value.detach(), model.embedding.weight.grad.clone()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert model.passes == 2 * [[3, 1], [2], [5], [1, 2]]  # without gradients, and again with them


def test_texts_with_a_prompt_length_in_a_tensor_are_cut_in_their_order():
    prompt = {"prompt_length": torch.tensor([1])}
    loss, expected, _ = step(alignment)
    cached, gradients, shapes = step(alignment, extra=prompt, mini_batch_tokens=BUDGET)
    torch.testing.assert_close(cached, loss)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=1e-6)
    assert sum(rows for rows, _ in shapes) == 2 * ROWS
    assert len(shapes) > 2
