from __future__ import annotations

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from torch.nn.functional import normalize

from mar_st.losses import AlignmentLoss


def _vectors(batch: int = 6, dim: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return normalize(torch.randn(batch, dim), dim=1), normalize(torch.randn(batch, dim), dim=1)


def _naive(
    students: torch.Tensor, teachers: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    contrastive, mse = [], []
    for i, student in enumerate(students):
        scores = torch.stack([student @ teacher for teacher in teachers]) / temperature
        contrastive.append(-torch.log(scores[i].exp() / scores.exp().sum()))
        mse.append(sum((student - teachers[i]) ** 2))
    return torch.stack(contrastive).mean(), torch.stack(mse).mean()


@pytest.mark.parametrize(("contrastive", "mse"), [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.3, 2.0)])
def test_equals_the_naive_formula(mar, contrastive, mse):
    students, teachers = _vectors()
    loss = AlignmentLoss(mar, temperature=0.1, contrastive_weight=contrastive, mse_weight=mse)
    parts = _naive(students, teachers, 0.1)
    expected = contrastive * parts[0] + mse * parts[1]
    torch.testing.assert_close(loss.compute_loss(students, teachers), expected)
    assert expected > 0.1


def test_mse_is_a_sum_over_dimensions_unlike_its_sibling(mar):
    students, teachers = _vectors()
    ours = AlignmentLoss(mar, contrastive_weight=0.0).compute_loss(students, teachers)
    mean = EmbedDistillLoss(mar, distance_metric="mse").compute_loss_from_embeddings([students], [teachers])
    torch.testing.assert_close(ours, mean * 8)


def test_perfect_student_has_no_distance(mar):
    students, _ = _vectors()
    assert AlignmentLoss(mar, contrastive_weight=0.0).compute_loss(students, students) == 0


def test_gradient_reaches_the_query_encoder_alone(mar):
    features = mar.preprocess(["头疼吃药", "高血压"], task="query")
    teachers = torch.from_numpy(mar.encode_corpus(["头疼吃药", "高血压"]))
    mar.train()
    AlignmentLoss(mar)([features], teachers).backward()
    query = [p.grad for p in mar.route_modules("query")[0].parameters() if p.grad is not None]
    assert sum(float(grad.abs().sum()) for grad in query) > 0
    assert all(p.grad is None for p in mar.route_modules("document")[0].parameters())


def test_bad_batches_are_refused(mar):
    features = mar.preprocess(["头疼", "高血压"], task="query")
    with pytest.raises(ValueError, match="1 text columns and no labels"):
        AlignmentLoss(mar)([features], None)
    with pytest.raises(ValueError, match=r"shape \(2, 32\).*\(2, 16\)"):
        AlignmentLoss(mar)([features], torch.zeros(2, 16))
    with pytest.raises(ValueError, match="2 text columns"):
        AlignmentLoss(mar)([features, dict(features)], torch.zeros(2, 32))
    with pytest.raises(ValueError, match="nor both zero"):
        AlignmentLoss(mar, contrastive_weight=0, mse_weight=0)
