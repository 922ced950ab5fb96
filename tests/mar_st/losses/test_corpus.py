from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from mar_st.losses.corpus import CorpusLoss

ANSWERS = [[0], [2, 4], [1, 3, 4]]


@pytest.fixture
def vectors():
    torch.manual_seed(0)
    return [normalize(torch.randn(n, 8), dim=1) for n in (3, 3, 5)]  # students, teacher's queries, documents


def _loss(mar, vectors, temperature=0.1):
    padded = torch.tensor([[*own, -1, -1][:3] for own in ANSWERS])
    return CorpusLoss(mar, queries=vectors[1], documents=vectors[2], answers=padded, temperature=temperature)


def _naive(student, teacher, documents, answers, temperature):
    q, p = ((documents @ one / temperature).exp() for one in (student, teacher))
    q, p = q / q.sum(), p / p.sum()
    labelled = torch.stack([-q[number].log() for number in answers]).mean()
    return labelled, sum(p * (p / q).log())


def test_equals_the_naive_formula(mar, vectors):
    students, teachers, documents = vectors
    rows = [2, 0, 1]
    loss = _loss(mar, vectors)
    value = loss.compute_loss_from_embeddings([students[rows]], torch.tensor(rows))
    parts = [_naive(students[row], teachers[row], documents, ANSWERS[row], 0.1) for row in rows]
    contrastive, kl = (torch.stack(part).mean() for part in zip(*parts, strict=True))
    torch.testing.assert_close(value, contrastive + kl)
    torch.testing.assert_close(loss.last_parts, {"contrastive": contrastive, "kl": kl})


def test_bfloat16_vectors_are_compared_in_float32(mar, vectors):
    loss, rows = _loss(mar, vectors), torch.arange(3)
    students = vectors[0].bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        value = loss.compute_loss_from_embeddings([students], rows)
    torch.testing.assert_close(value, loss.compute_loss_from_embeddings([students.float()], rows))


def test_only_the_query_encoder_is_trained(mar):
    texts = ["头疼吃药", "高血压", "咳嗽"]
    documents = torch.from_numpy(mar.encode_corpus(texts))
    loss = CorpusLoss(mar, queries=documents, documents=documents, answers=torch.arange(3)[:, None])
    assert not loss.state_dict().keys() & {"queries", "documents", "answers"}
    mar.train()
    loss([mar.preprocess(texts, task="query")], torch.arange(3)).backward()
    gradients = [p.grad for p in mar.route_modules("query")[0].parameters() if p.grad is not None]
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0
    assert all(p.grad is None for p in mar.route_modules("document")[0].parameters())
