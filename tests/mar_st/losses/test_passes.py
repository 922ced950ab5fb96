"""GradCache by tokens: the gradients of the whole batch, in passes within the limit, without waits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mar_st.losses.alignment import AlignmentLoss
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.losses.columns import SPANS, spans_of
from mar_st.losses.passes import token_cuts
from mar_st.losses.score_distill import ScoreDistillLoss
from tests.mar_st.stages.helpers import mar

ROWS = 12
TEXTS = ["头疼吃什么药" * (1 + 7 * (row % 5 == 3)) + "好" * (row % 3) for row in range(ROWS)]
VECTORS = torch.nn.functional.normalize(torch.randn(ROWS, 3, 16, generator=torch.manual_seed(0)), dim=-1)
BUDGET = 60


def alignment(model, **limits):
    return AlignmentLoss(model, **limits), ("query",), VECTORS[:, 0]


def asym(model, **limits):
    return AsymInfoNCELoss(model, temperature=0.1, dims=(8, 16), **limits), ("query", *["document"] * 2), None


def frozen(model, **limits):
    for module in model.route_modules("document"):
        module.requires_grad_(False)
    return asym(model, **limits)


def distill(model, **limits):
    return ScoreDistillLoss(model, temperature=0.1, **limits), ("query", "document", "document"), VECTORS


def features_of(model, routes, *, spans):
    columns = []
    for number, route in enumerate(routes):
        texts = TEXTS[number:] + TEXTS[:number]
        column = {**model.preprocess(texts, task=route), "task": route}
        columns.append(column | ({SPANS: spans_of(column["attention_mask"])} if spans else {}))
    return columns


def step(make, *, spans=True, extra=None, **limits):
    """Loss and gradients of one batch, and the shape of every pass; `extra` goes into all columns."""
    model = mar()
    loss, routes, labels = make(model, **limits)
    shapes = []
    model.register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0]["input_ids"].shape)))
    value = loss([column | (extra or {}) for column in features_of(model, routes, spans=spans)], labels)
    value.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return value.detach(), gradients, shapes


@pytest.mark.thorough(
    but=[
        "asym-limits0-True",
        "distill-limits1-False",
        "alignment-limits1-False",
        "alignment-limits0-False",
        "frozen-limits1-True",
        "frozen-limits0-True",
    ]
)
@pytest.mark.parametrize("spans", [True, False])
@pytest.mark.parametrize("limits", [{"mini_batch_tokens": BUDGET}, {"mini_batch_size": 3}])
@pytest.mark.parametrize("make", [alignment, asym, frozen, distill])
def test_gradients_are_those_of_the_whole_batch(make, limits, spans):
    loss, expected, _ = step(make)
    cached, gradients, shapes = step(make, spans=spans, **limits)
    torch.testing.assert_close(cached, loss)
    assert gradients.keys() == expected.keys()
    assert any(gradient.abs().sum() > 0 for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=1e-6)
    assert len(shapes) > 2


def test_a_pass_is_limited_by_tokens_not_rows():
    *_, shapes = step(alignment, mini_batch_tokens=BUDGET)
    *_, by_rows = step(alignment, mini_batch_size=4)
    assert all(rows * width <= BUDGET or rows == 1 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) > 4
    padded = [sum(rows * width for rows, width in passes) for passes in (shapes, by_rows)]
    assert padded[0] < 0.8 * padded[1]


@pytest.mark.parametrize("padding", ["right", "left"])
def test_both_limits_hold_together(padding):
    lengths = np.array([30, 20, 10, 4, 4, 4, 4])
    spans = np.stack([lengths * 0, lengths] if padding == "right" else [30 - lengths, lengths * 0 + 30])
    assert token_cuts(spans, 100, 40) == [1, 3, 7]
    assert token_cuts(spans, 3, 40) == [1, 3, 6, 7]
    assert token_cuts(spans, 100, 8) == [1, 2, 3, 5, 7]  # a text beyond the limit goes alone


def test_passes_keep_to_both_limits():
    *_, shapes = step(alignment, mini_batch_size=3, mini_batch_tokens=BUDGET)
    assert all(rows * width <= BUDGET or rows == 1 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) == 3


def test_a_pass_of_one_row_has_no_padding():
    *_, shapes = step(alignment, mini_batch_size=1)
    assert shapes == 2 * [(1, len(text) + 2) for text in TEXTS]  # [CLS], a token per character, [SEP]


def test_spans_are_where_texts_begin_and_end():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]])
    assert spans_of(mask).tolist() == [[2, 0, 1], [4, 2, 4]]


class Waits(TorchFunctionMode):
    """Names of calls that would wait for a device, whatever they are made on."""

    NAMES = ("item", "tolist", "nonzero", "__int__", "__bool__", "__float__", "__index__", "numpy", "cpu")

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in self.NAMES:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class WaitingOperators(TorchDispatchMode):
    """Operators that wait for a device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        boolean = name == "aten::index.Tensor" and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if boolean or name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class Bag(torch.nn.Module):
    """An encoder without waits of its own: the mean of the embeddings of a text's tokens."""

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


@pytest.mark.thorough
@pytest.mark.parametrize("limits", [{}, {"mini_batch_size": 3}, {"mini_batch_tokens": BUDGET}])
@pytest.mark.parametrize("make", [alignment, asym, distill])
def test_a_step_does_not_wait_for_the_device(make, limits):
    model = mar()
    loss, routes, labels = make(model, **limits)
    loss.model = Bag(model)
    waits = {}
    for spans in (True, False):
        features = features_of(model, routes, spans=spans)
        with Waits() as waiting_calls, WaitingOperators() as waiting_operators:
            loss(features, labels).backward()
        waits[spans] = waiting_calls.names + waiting_operators.names
    assert waits[True] == []
    assert waits[False]  # without the collator's spans there is no way around it
