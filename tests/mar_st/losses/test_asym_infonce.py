from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st.losses import asym_infonce
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.model.encoders import load_encoder

QUERIES = ["头疼吃什么药", "高血压", "感冒发热怎么办呢", "咳嗽", "医生你好"]
POSITIVES = ["头疼吃药好", "高血压吃什么药好", "发热", "感冒咳嗽怎么办", "你好"]
NEGATIVES = ["咳嗽吃药", "医生", "头疼头疼头疼", "高血压怎么办呢", "吃什么"]


def _columns(batch=5, columns=4, dim=8):
    torch.manual_seed(0)
    return [torch.randn(batch, dim, requires_grad=True) for _ in range(columns)]


def _naive(columns, temperature, *, unit=True, both=False, margin=None):
    """Row by row; returns the mean loss."""
    queries, *documents = [
        column / column.norm(dim=1, keepdim=True) if unit else column for column in columns
    ]
    losses = []
    for i in range(len(queries)):
        directions = [(queries[i], [(j, d) for block in documents for j, d in enumerate(block)])]
        if both:
            directions.append((documents[0][i], list(enumerate(queries))))
        for asking, answers in directions:
            own = asking @ answers[i][1]
            kept = [
                asking @ vector / temperature
                for j, vector in answers
                if margin is None or j == i or asking @ vector <= own + margin
            ]
            losses.append(-torch.log((own / temperature).exp() / torch.stack(kept).exp().sum()))
    return torch.stack(losses).mean()


def _gradients(loss, columns):
    return torch.autograd.grad(loss, columns)


def _close(ours, naive, columns):
    torch.testing.assert_close(ours, naive)
    for one, other in zip(_gradients(ours, columns), _gradients(naive, columns), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
        assert one.abs().max() > 1e-4


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("margin", [None, 0.0, 0.3])
@pytest.mark.parametrize("scores", [asym_infonce.MAX_SCORES, 30])
def test_equals_the_naive_formula(mar, monkeypatch, both, margin, scores):
    monkeypatch.setattr(asym_infonce, "MAX_SCORES", scores)  # 30: one or two rows of the matrix at a time
    columns = _columns()
    loss = AsymInfoNCELoss(mar, temperature=0.5, both_directions=both, false_negative_margin=margin)
    naive = _naive(columns, 0.5, both=both, margin=margin)
    _close(loss.compute_loss_from_embeddings(columns, None), naive, columns)
    others = {_naive(columns, 0.5, both=b, margin=m).item() for b in (False, True) for m in (None, 0.0, 0.3)}
    assert len(others) == 6


@pytest.mark.parametrize("both", [False, True])
def test_dims_are_the_mean_over_renormalised_prefixes(mar, both):
    columns = _columns()
    loss = AsymInfoNCELoss(mar, temperature=0.5, dims=(2, 8, 5), both_directions=both)
    parts = [_naive([column[:, :dim] for column in columns], 0.5, both=both) for dim in (2, 5, 8)]
    _close(loss.compute_loss_from_embeddings(columns, None), sum(parts) / 3, columns)
    assert set(loss.last_parts) == {"dim_2", "dim_5", "dim_8"}
    torch.testing.assert_close(loss.last_parts["dim_5"], parts[1].detach() / 3)


def test_without_normalisation_scores_are_dot_products(mar):
    columns = _columns()
    cosine = AsymInfoNCELoss(mar, temperature=1.0).compute_loss_from_embeddings(columns, None)
    mar.similarity_fn_name = "dot"
    dot = AsymInfoNCELoss(mar, temperature=1.0).compute_loss_from_embeddings(columns, None)
    _close(dot, _naive(columns, 1.0, unit=False), columns)
    assert abs(dot.item() - cosine.item()) > 1e-3
    prefix = AsymInfoNCELoss(mar, temperature=1.0, dims=[4]).compute_loss_from_embeddings(columns, None)
    _close(prefix, _naive([column[:, :4] for column in columns], 1.0, unit=False), columns)
    mar.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match="compares by euclidean"):
        AsymInfoNCELoss(mar)


def test_learnable_temperature_gets_the_gradient_of_the_formula(mar):
    columns = _columns()
    loss = AsymInfoNCELoss(mar, temperature=0.1, learnable_temperature=True, dims=(8, 4))
    fixed = AsymInfoNCELoss(mar, temperature=0.1, dims=(8, 4))
    value = loss.compute_loss_from_embeddings(columns, None)
    torch.testing.assert_close(value, fixed.compute_loss_from_embeddings(columns, None))
    log_scale = torch.tensor(0.1).log().neg().requires_grad_()
    whole = [[c[:, :dim] for c in columns] for dim in (8, 4)]
    naive = sum(_naive(c, 1 / log_scale.exp()) for c in whole) / 2
    theirs = torch.autograd.grad(3 * naive, [*columns, log_scale])
    for ours, expected in zip(_gradients(3 * value, [*columns, loss.log_scale]), theirs, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
        assert ours.abs().max() > 1e-3
    assert loss.temperature == pytest.approx(0.1, rel=1e-4)
    assert "log_scale" in dict(loss.named_parameters())
    assert "log_scale" not in dict(fixed.named_parameters())


def test_a_learnt_temperature_stays_in_range_and_can_come_back(mar):
    loss = AsymInfoNCELoss(mar, temperature=0.5, learnable_temperature=True)
    features = [mar.preprocess(texts, task="query") for texts in (QUERIES, POSITIVES)]
    with torch.no_grad():
        loss.log_scale.fill_(-3.0)
    loss([dict(f) for f in features]).backward()
    assert loss.temperature == pytest.approx(1.0)
    assert loss.log_scale.grad.abs() > 0
    assert AsymInfoNCELoss(mar, temperature=4.0).temperature == pytest.approx(4.0)


def test_bfloat16_vectors_are_scored_in_float32(mar):
    columns = [column.detach().bfloat16().requires_grad_() for column in _columns()]
    loss = AsymInfoNCELoss(mar, temperature=0.02)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss.compute_loss_from_embeddings(columns, None)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss.compute_loss_from_embeddings([c.float() for c in columns], None))
    value.backward()
    assert columns[0].grad.dtype == torch.bfloat16


# -- GradCache --


def _without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def _features(model, tasks):
    texts = (QUERIES, POSITIVES, NEGATIVES)
    return [model.preprocess(column, task=task) for column, task in zip(texts, tasks, strict=True)]


def _step(model, tasks, seed=3, **options):
    """Value and gradients of a step, those of the loss's own parameters included."""
    made = AsymInfoNCELoss(model, **options)
    made.zero_grad()
    torch.manual_seed(seed)
    value = made(_features(model, tasks), None)
    (2.5 * value).backward()
    grads = {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}
    return value.detach(), grads, getattr(made, "last_parts", {})


def _same(first, second, relative=1e-5):
    torch.testing.assert_close(first[0], second[0], rtol=1e-5, atol=1e-6)
    assert first[1].keys() == second[1].keys()
    for name, grad in first[1].items():
        assert (grad - second[1][name]).norm() <= relative * grad.norm() + 1e-8, name
    assert max(float(grad.abs().max()) for grad in first[1].values()) > 1e-3


ROUTES = ("query", "document", "document")


def test_gradcache_replays_dropout(query_source):
    """The gradients of the second pass belong to the vectors of the first, dropout included."""
    query_source[0].hidden_dropout_prob = 0.3
    model = SentenceTransformer(modules=[*load_encoder(query_source, "query"), Normalize()], device="cpu")
    model.train()
    tasks, vectors = (None, None, None), []
    model.register_forward_hook(lambda module, inputs, output: vectors.append(output["sentence_embedding"]))
    _step(model, tasks, mini_batch_size=2)
    first, second = vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :]
    assert len(first) == 9
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    vectors.clear()
    _step(model, tasks, mini_batch_size=2, seed=4)
    assert not torch.equal(vectors[0], first[0])


@pytest.mark.parametrize("frozen", ["query", "document"])
def test_a_frozen_route_has_no_gradients_and_is_not_encoded_twice(mar, frozen):
    _without_dropout(mar)
    both = _step(mar, ROUTES, temperature=0.1)
    for module in mar.route_modules(frozen):
        module.requires_grad_(False)
    calls = []
    mar.route_modules(frozen)[0].register_forward_hook(lambda *args: calls.append(torch.is_grad_enabled()))
    plain = _step(mar, ROUTES, temperature=0.1)
    calls.clear()
    cached = _step(mar, ROUTES, temperature=0.1, mini_batch_size=2)
    _same(plain, cached)
    assert plain[1].keys() == {name for name in both[1] if f"sub_modules.{frozen}." not in name}
    columns = 1 if frozen == "query" else 2
    assert (calls.count(False), calls.count(True)) == (3 * columns, columns)  # one pass shows it
    for name, grad in plain[1].items():
        torch.testing.assert_close(grad, both[1][name])


@pytest.mark.parametrize("size", [None, 2])
def test_evaluation_needs_no_gradients(mar, size):
    mar.eval()
    with torch.no_grad():
        value = AsymInfoNCELoss(mar, mini_batch_size=size, learnable_temperature=True)(_features(mar, ROUTES))
    assert not value.requires_grad
    torch.testing.assert_close(value, AsymInfoNCELoss(mar)(_features(mar, ROUTES)).detach())


@pytest.mark.parametrize("size", [None, 2])
def test_stored_documents_give_the_gradients_of_frozen_ones(mar, size):
    _without_dropout(mar)
    for module in mar.route_modules("document"):
        module.requires_grad_(False)
    live = _step(mar, ROUTES, temperature=0.05)
    stored = [torch.from_numpy(mar.encode_corpus(texts)) for texts in (QUERIES, POSITIVES, NEGATIVES)]
    mar.train()
    loss = AsymInfoNCELoss(mar, temperature=0.05, mini_batch_size=size)
    mar.zero_grad()
    value = loss([mar.preprocess(QUERIES, task="query")], torch.stack(stored, dim=1))
    (2.5 * value).backward()
    grads = {f"model.{name}": p.grad.clone() for name, p in mar.named_parameters() if p.grad is not None}
    _same(live, (value.detach(), grads, {}), relative=1e-4)
