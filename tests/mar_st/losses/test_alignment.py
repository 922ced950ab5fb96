from __future__ import annotations

import sys

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from torch.nn.functional import normalize

from mar_st.losses.alignment import AlignmentLoss
from tests.mar_st.losses.processes import Processes

TEXTS = ["头疼吃药", "高血压", "感冒发热怎么办", "咳嗽"]


def _vectors(batch: int = 6, dim: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return normalize(torch.randn(batch, dim), dim=1), 0.8 * normalize(torch.randn(batch, dim), dim=1)


def _naive(
    students: torch.Tensor, teachers: torch.Tensor, temperature: float, kl_temperature: float
) -> list[torch.Tensor]:
    contrastive, mse, cosine, kl = [], [], [], []
    for student, teacher in zip(students, teachers, strict=True):
        scores = torch.stack([student @ other for other in teachers]) / temperature
        contrastive.append(-torch.log((student @ teacher / temperature).exp() / scores.exp().sum()))
        mse.append(sum((student - teacher) ** 2))
        cosine.append(1 - student @ teacher / student.norm() / teacher.norm())
        p, q = ((v / kl_temperature).exp() for v in (teacher, student))
        p, q = p / p.sum(), q / q.sum()
        kl.append(kl_temperature**2 * sum(p * (p / q).log()))
    return [torch.stack(part).mean() for part in (contrastive, mse, cosine, kl)]


@pytest.mark.parametrize(
    "weights", [(1, 1, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0.3, 2.0, 0.5, 3.0)]
)
def test_equals_the_naive_formula(mar, weights):
    students, teachers = _vectors()
    names = ("contrastive", "mse", "cosine", "kl")
    given = {f"{name}_weight": weight for name, weight in zip(names, weights, strict=True)}
    loss = AlignmentLoss(mar, temperature=0.1, kl_temperature=0.2, **given)
    parts = [w * part for w, part in zip(weights, _naive(students, teachers, 0.1, 0.2), strict=True)]
    torch.testing.assert_close(loss.compute_loss(students, teachers), sum(parts))
    assert sum(parts) > 0.01
    expected = {name: part for name, part, weight in zip(names, parts, weights, strict=True) if weight}
    torch.testing.assert_close(loss.last_parts, expected)


def test_several_texts_are_the_weighted_sum_of_their_losses(mar):
    students, teachers = _vectors(12)
    options = {"cosine_weight": 0.5, "kl_weight": 2.0}
    whole = AlignmentLoss(mar, text_weights=(0.6, 0.2), **options)
    value = whole.compute_loss(students.reshape(6, 2, -1), teachers.reshape(6, 2, -1))
    parts = [AlignmentLoss(mar, **options).compute_loss(students[i::2], teachers[i::2]) for i in (0, 1)]
    torch.testing.assert_close(value, 0.6 * parts[0] + 0.2 * parts[1])
    assert (parts[0] - parts[1]).abs() > 1e-3


def test_mse_sums_over_dimensions_unlike_embed_distill_loss(mar):
    students, teachers = _vectors()
    ours = AlignmentLoss(mar, contrastive_weight=0.0).compute_loss(students, teachers)
    mean = EmbedDistillLoss(mar, distance_metric="mse").compute_loss_from_embeddings([students], [teachers])
    torch.testing.assert_close(ours, mean * 8)


def test_gradient_reaches_the_query_encoder_alone(mar):
    features = mar.preprocess(TEXTS, task="query")
    teachers = torch.from_numpy(mar.encode_corpus(TEXTS))
    mar.train()
    AlignmentLoss(mar)([features], teachers).backward()
    query = [p.grad for p in mar.route_modules("query")[0].parameters() if p.grad is not None]
    assert sum(float(grad.abs().sum()) for grad in query) > 0
    assert all(p.grad is None for p in mar.route_modules("document")[0].parameters())


def test_the_losses_of_two_processes_average_to_that_of_the_joined_batch(mar, monkeypatch):
    students, teachers = _vectors()
    expected = AlignmentLoss(mar).compute_loss(students, teachers)
    processes = Processes(monkeypatch)
    module = sys.modules[AlignmentLoss.__module__]
    monkeypatch.setattr(module, "all_gather", lambda own: torch.cat(processes.exchange(own)))
    monkeypatch.setattr(module, "get_rank", processes.rank)

    def mean_loss(**options):
        loss = AlignmentLoss(mar, **options)
        halves = list(zip(students.split(3), teachers.split(3), strict=True))
        return torch.stack(processes.run(lambda rank: loss.compute_loss(*halves[rank]))).mean()

    torch.testing.assert_close(mean_loss(gather_across_devices=True), expected)
    assert expected - mean_loss() > 0.1, "by default a process has its own negatives alone"


def test_bfloat16_vectors_are_compared_in_float32(mar):
    students, teachers = (vectors.bfloat16() for vectors in _vectors())
    loss = AlignmentLoss(mar, cosine_weight=1.0, kl_weight=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss.compute_loss(students, teachers)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss.compute_loss(students.float(), teachers.float()))
