from __future__ import annotations

import sys

import pytest
import torch
from torch.nn.functional import normalize

from mar_st.losses import AsymInfoNCELoss, StoredInfoNCELoss
from tests.mar_st.losses.processes import Processes

QUERIES = ["头疼吃什么药", "高血压怎么办", "感冒发热怎么办呢"]
DOCUMENTS = [["头疼吃药", "头疼医生"], ["高血压吃什么药好", "高血压你好"], ["感冒发热吃药", "咳嗽"]]


def test_equals_the_naive_formula(mar):
    torch.manual_seed(0)
    queries, documents = normalize(torch.randn(4, 8), dim=1), normalize(torch.randn(4, 3, 8), dim=2)
    rows = []
    for query, own in zip(queries, documents, strict=True):
        scores = torch.stack([query @ d for group in documents for d in group]) / 0.05
        rows.append(-torch.log((query @ own[0] / 0.05).exp() / scores.exp().sum()))
    loss = StoredInfoNCELoss(mar, temperature=0.05).compute_loss(queries, documents)
    torch.testing.assert_close(loss, torch.stack(rows).mean())


@pytest.mark.parametrize("size", [None, 2])
def test_equals_the_joint_loss_with_documents_frozen(mar, size):
    for module in mar.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for module in mar.route_modules("document"):
        module.requires_grad_(False)
    vectors = torch.stack([torch.from_numpy(mar.encode_corpus(texts)) for texts in DOCUMENTS])
    mar.train()
    features = [mar.preprocess(QUERIES, task="query")]
    live = [*features, *(mar.preprocess([d[i] for d in DOCUMENTS], task="document") for i in (0, 1))]
    gradients = []
    for loss in (
        AsymInfoNCELoss(mar, temperature=0.05)([dict(f) for f in live], None),
        StoredInfoNCELoss(mar, temperature=0.05, mini_batch_size=size)(features, vectors),
    ):
        mar.zero_grad()
        loss.backward()
        gradients.append([p.grad.clone() for p in mar.parameters() if p.grad is not None] + [loss.detach()])
    assert max(float(g.abs().max()) for g in gradients[0]) > 1e-3
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_bad_batches_are_refused(mar):
    features = mar.preprocess(QUERIES, task="query")
    with pytest.raises(ValueError, match="no labels"):
        StoredInfoNCELoss(mar)([features], None)
    with pytest.raises(ValueError, match=r"\(3, 32\).*\(3, 32\)"):
        StoredInfoNCELoss(mar)([features], torch.zeros(3, 32))
    for shape in ((3, 2, 16), (2, 2, 32)):
        with pytest.raises(ValueError, match=rf"\(3, 32\) and documents of \({shape[0]}, 2, {shape[2]}\)"):
            StoredInfoNCELoss(mar)([features], torch.zeros(shape))
    with pytest.raises(ValueError, match=r"takes one text column .* got 2 text columns and labels"):
        StoredInfoNCELoss(mar)([features, features], torch.zeros(3, 2, 32))
    with pytest.raises(ValueError, match="must be positive"):
        StoredInfoNCELoss(mar, temperature=0)


def test_default_temperature_makes_a_gap_of_a_twentieth_one_unit_of_log_odds(mar):
    """Both queries score the documents 1 and 0.95: the costs are log(1 + 1/e) and log(1 + e)."""
    queries = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    documents = torch.tensor([[[1.0, 0.0]], [[0.95, 0.0]]])
    value = StoredInfoNCELoss(mar).compute_loss(queries, documents)
    assert value.item() == pytest.approx(0.813262, rel=1e-4)


def test_a_loss_made_from_the_settings_of_another_is_the_same(mar):
    given = {
        "temperature": 0.3,
        "gather_across_devices": True,
        "mini_batch_size": 2,
        "mini_batch_tokens": 40,
    }
    loss = StoredInfoNCELoss(mar, **given)
    assert loss.get_config_dict() == given
    again = StoredInfoNCELoss(mar, **loss.get_config_dict())
    torch.manual_seed(0)
    queries, documents = torch.randn(4, 8), torch.randn(4, 3, 8)
    assert torch.equal(again.compute_loss(queries, documents), loss.compute_loss(queries, documents))


def test_the_losses_of_two_processes_average_to_that_of_the_joined_batch(mar, monkeypatch):
    torch.manual_seed(0)
    queries, documents = normalize(torch.randn(6, 8), dim=1), normalize(torch.randn(6, 2, 8), dim=2)
    expected = StoredInfoNCELoss(mar).compute_loss(queries, documents)
    processes = Processes(monkeypatch)
    module = sys.modules[StoredInfoNCELoss.__module__]
    monkeypatch.setattr(module, "all_gather", lambda own: torch.cat(processes.exchange(own)))
    monkeypatch.setattr(module, "get_rank", processes.rank)

    def mean_loss(**options):
        loss = StoredInfoNCELoss(mar, **options)
        halves = list(zip(queries.split(3), documents.split(3), strict=True))
        return torch.stack(processes.run(lambda rank: loss.compute_loss(*halves[rank]))).mean()

    torch.testing.assert_close(mean_loss(gather_across_devices=True), expected)
    assert expected - mean_loss() > 0.1, "by default a process has its own negatives alone"


def test_vectors_of_half_precision_are_scored_in_float32(mar):
    torch.manual_seed(0)
    queries = normalize(torch.randn(4, 8), dim=1).bfloat16()
    documents = normalize(torch.randn(4, 3, 8), dim=2).half()
    loss = StoredInfoNCELoss(mar)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss.compute_loss(queries, documents)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss.compute_loss(queries.float(), documents.float()))


def test_one_stored_document_per_row_is_enough(mar):
    """Labels of a query and a positive; the query's own vector in front is not read."""
    vectors = torch.stack([torch.from_numpy(mar.encode_corpus([texts[0]])) for texts in DOCUMENTS])
    mar.eval()
    features = [mar.preprocess(QUERIES, task="query")]
    front = torch.full_like(vectors, 9.0)
    joint = AsymInfoNCELoss(mar, temperature=0.05)(features, torch.cat([front, vectors], dim=1))
    torch.testing.assert_close(joint, StoredInfoNCELoss(mar, temperature=0.05)(features, vectors))
