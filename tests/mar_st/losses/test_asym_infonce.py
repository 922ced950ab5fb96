from __future__ import annotations

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from mar_st.losses import AsymInfoNCELoss


def _embeddings(batch: int = 5, columns: int = 4, dim: int = 8) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(batch, dim, requires_grad=True) for _ in range(columns)]


def _naive(columns: list[torch.Tensor], temperature: float) -> torch.Tensor:
    unit = [column / column.norm(dim=1, keepdim=True) for column in columns]
    documents = torch.cat(unit[1:])
    losses = []
    for i, query in enumerate(unit[0]):
        scores = torch.stack([query @ document for document in documents]) / temperature
        losses.append(-torch.log(scores[i].exp() / scores.exp().sum()))
    return torch.stack(losses).mean()


def test_equals_the_naive_formula(mar):
    columns = _embeddings()
    loss = AsymInfoNCELoss(mar, temperature=0.5).compute_loss_from_embeddings(columns, None)
    torch.testing.assert_close(loss, _naive(columns, 0.5))
    assert loss > 0.1


def test_equals_its_sibling_for_a_fixed_temperature(mar):
    columns = _embeddings()
    ours = AsymInfoNCELoss(mar, temperature=0.05).compute_loss_from_embeddings(columns, None)
    theirs = MultipleNegativesRankingLoss(mar, scale=20.0).compute_loss_from_embeddings(columns, None)
    torch.testing.assert_close(ours, theirs)


def test_published_models_are_scored_by_dot_product(mar):
    columns = _embeddings()
    cosine = AsymInfoNCELoss(mar, temperature=1.0).compute_loss_from_embeddings(columns, None)
    mar.similarity_fn_name = "dot"
    dot = AsymInfoNCELoss(mar, temperature=1.0).compute_loss_from_embeddings(columns, None)
    scores = columns[0] @ torch.cat(columns[1:]).T
    torch.testing.assert_close(dot, torch.nn.functional.cross_entropy(scores, torch.arange(5)))
    assert abs(dot.item() - cosine.item()) > 1e-3


def test_learnable_temperature_gets_a_gradient(mar):
    fixed, learnt = (
        AsymInfoNCELoss(mar, temperature=0.1),
        AsymInfoNCELoss(mar, temperature=0.1, learnable_temperature=True),
    )
    columns = _embeddings()
    loss = learnt.compute_loss_from_embeddings(columns, None)
    torch.testing.assert_close(loss, fixed.compute_loss_from_embeddings(columns, None))
    loss.backward()
    assert learnt.log_scale.grad is not None
    assert learnt.log_scale.grad.abs() > 0
    assert learnt.temperature == pytest.approx(0.1, rel=1e-4)
    assert "log_scale" in dict(learnt.named_parameters())
    assert "log_scale" not in dict(fixed.named_parameters())


def test_false_negatives_are_left_out_but_own_documents_stay(mar):
    torch.manual_seed(1)
    queries = torch.randn(3, 8)
    positives = queries + 0.5 * torch.randn(3, 8)
    negatives = torch.randn(3, 8)
    negatives[1] = queries[0]  # row 1's negative answers row 0 better than row 0's own positive
    negatives[2] = queries[2]  # row 2's own negative: labelled, so it stays whatever its score
    columns = [queries, positives, negatives]
    plain = AsymInfoNCELoss(mar, temperature=0.5)
    masked = AsymInfoNCELoss(mar, temperature=0.5, false_negative_margin=0.0)
    scores = masked._scaled_scores(queries, torch.cat(columns[1:]))
    assert scores[0, 3 + 1] == -torch.inf
    assert torch.isfinite(scores[2, 3 + 2])
    assert torch.isfinite(scores[torch.arange(3), torch.arange(3)]).all()
    assert masked.compute_loss_from_embeddings(columns, None) < plain.compute_loss_from_embeddings(
        columns, None
    )


def test_impossible_settings_are_refused(mar):
    with pytest.raises(ValueError, match="temperature must be positive; got 0"):
        AsymInfoNCELoss(mar, temperature=0)
    with pytest.raises(ValueError, match="margin must not be negative"):
        AsymInfoNCELoss(mar, false_negative_margin=-0.1)
