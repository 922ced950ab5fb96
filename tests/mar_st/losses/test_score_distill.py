from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from mar_st.losses import asym_infonce
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from mar_st.losses.score_distill import ScoreDistillLoss


def _student(batch=5, columns=3, dim=8):
    torch.manual_seed(0)
    return [torch.randn(batch, dim).requires_grad_() for _ in range(columns)]


def _teacher(batch=5, columns=3, dim=12):
    torch.manual_seed(1)
    return normalize(torch.randn(batch, columns, dim), dim=2)


def _naive(students, teachers, tau, teacher_tau, scope="batch"):
    """KL and InfoNCE, row by row, from the definitions."""
    students = [normalize(column, dim=1) for column in students]
    documents = [(c, j) for c in range(1, len(students)) for j in range(len(students[0]))]
    kl, contrastive = [], []
    for i, query in enumerate(students[0]):
        scored = documents if scope == "batch" else [(c, i) for c in range(1, len(students))]
        s = torch.stack([query @ students[c][j] for c, j in scored]) / tau
        t = torch.stack([teachers[i, 0] @ teachers[j, c] for c, j in scored]) / teacher_tau
        q, p = s.exp() / s.exp().sum(), t.exp() / t.exp().sum()
        kl.append((p * (p / q).log()).sum())
        whole = torch.stack([query @ students[c][j] for c, j in documents]) / tau
        contrastive.append(whole.logsumexp(dim=0) - whole[i])
    return torch.stack(kl).mean(), torch.stack(contrastive).mean()


@pytest.mark.parametrize("scope", ["group", "batch"])
@pytest.mark.parametrize("scores", [asym_infonce.MAX_SCORES, 20])
@pytest.mark.parametrize(("weights", "teacher"), [((1, 1), None), ((2.0, 0.0), 0.1), ((0.5, 3.0), 0.9)])
def test_equals_the_naive_formula(mar, monkeypatch, weights, teacher, scores, scope):
    monkeypatch.setattr(asym_infonce, "MAX_SCORES", scores)
    students, teachers = _student(), _teacher()
    options = {"teacher_temperature": teacher, "kl_weight": weights[0], "contrastive_weight": weights[1]}
    loss = ScoreDistillLoss(mar, temperature=0.3, kl_scope=scope, **options)
    value = loss.compute_loss_from_embeddings(students, teachers)
    parts = _naive(students, teachers, 0.3, teacher or 0.3, scope)
    naive = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    torch.testing.assert_close(value, naive)
    ours, theirs = (torch.autograd.grad(v, students) for v in (value, naive))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
        assert one.abs().max() > 1e-3
    if all(weights):
        torch.testing.assert_close(loss.last_parts["kl"], weights[0] * parts[0].detach())
        torch.testing.assert_close(loss.last_parts["contrastive"], weights[1] * parts[1].detach())
    assert parts[0] > 0.01
    other = _naive(students, teachers, 0.3, teacher or 0.3, "group" if scope == "batch" else "batch")
    assert (parts[0] - other[0]).abs() > 1e-3


@pytest.mark.parametrize("held", [asym_infonce.MAX_SCORES, 20])
def test_labels_may_be_scores_of_the_group_or_vectors(mar, monkeypatch, held):
    monkeypatch.setattr(asym_infonce, "MAX_SCORES", held)  # 20: two rows of the matrix at a time
    students, teachers = _student(), _teacher()
    loss = ScoreDistillLoss(mar, temperature=0.3, teacher_temperature=0.5)
    scores = torch.einsum("nd,ncd->nc", teachers[:, 0], teachers[:, 1:])
    values = [loss.compute_loss_from_embeddings(students, labels) for labels in (teachers, scores)]
    torch.testing.assert_close(*values)
    grads = [torch.autograd.grad(value, students) for value in values]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    changed = loss.compute_loss_from_embeddings(students, scores.flip(1))
    assert (changed - values[0]).abs() > 1e-3


def test_dims_are_the_mean_over_prefixes_with_the_teacher_at_its_full_width(mar):
    students, teachers = _student(), _teacher()
    options = {"temperature": 0.3, "both_directions": True}
    plain, dims = ScoreDistillLoss(mar, **options), ScoreDistillLoss(mar, dims=(8, 3), **options)
    whole = dims.compute_loss_from_embeddings(students, teachers)
    parts = [
        plain.compute_loss_from_embeddings([column[:, :dim] for column in students], teachers)
        for dim in (8, 3)
    ]
    torch.testing.assert_close(whole, sum(parts) / 2)
    assert (parts[0] - parts[1]).abs() > 1e-3


def test_without_kl_it_equals_asym_infonce(mar):
    for margin, both, columns in ((None, False, 3), (0.0, False, 3), (0.0, True, 3), (None, False, 2)):
        students, teachers = _student(columns=columns), _teacher(columns=columns)
        options = {"temperature": 0.3, "both_directions": both, "false_negative_margin": margin}
        ours, plain = ScoreDistillLoss(mar, kl_weight=0, **options), AsymInfoNCELoss(mar, **options)
        value = ours.compute_loss_from_embeddings(students, teachers)
        assert torch.equal(value, plain.compute_loss_from_embeddings(students, None))


def test_default_loss_is_infonce_and_the_kl_of_the_group_at_one_temperature(mar):
    """Scores 0.02 apart are one unit of log-odds; a teacher who gives the same scores has no KL.

    Both queries score the positives 1 and 0.98 and the negatives 0.98 and 0.96. The first costs
    log(1 + 2/e + 1/e^2) = 2 log(1 + 1/e) = 0.626523, the second log(e + 2 + 1/e) = 1.626523.
    """
    mar.similarity_fn_name = "dot"
    columns = [torch.tensor([[a, 0.0], [b, 0.0]]) for a, b in ((1.0, 1.0), (1.0, 0.98), (0.98, 0.96))]
    loss = ScoreDistillLoss(mar)
    value = loss.compute_loss_from_embeddings(columns, torch.tensor([[1.0, 0.98], [0.98, 0.96]]))
    assert value.item() == pytest.approx(1.126523, rel=1e-4)
    assert loss.last_parts["kl"].item() == pytest.approx(0.0, abs=1e-5)
    changed = loss.compute_loss_from_embeddings(columns, torch.tensor([[1.0, 0.9], [0.98, 0.96]]))
    assert changed > value + 0.01


def test_the_margin_does_not_change_the_kl(mar):
    students, teachers = _student(), _teacher()
    values = []
    for margin in (None, 0.0):
        loss = ScoreDistillLoss(mar, temperature=0.3, false_negative_margin=margin)
        loss.compute_loss_from_embeddings(students, teachers)
        values.append(loss.last_parts)
    assert torch.equal(values[0]["kl"], values[1]["kl"])
    assert values[1]["contrastive"] < values[0]["contrastive"] - 1e-3
