from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from mar_st.losses import asym_infonce
from mar_st.losses.asym_infonce import AsymInfoNCELoss
from tests.mar_st.losses.processes import Processes

ROWS, WIDTH = 4, 6


class BagOfTokens(torch.nn.Module):
    """An encoder: the sum of the embeddings of a text's tokens."""

    similarity_fn_name, device = "cosine", torch.device("cpu")

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(20, WIDTH)

    def forward(self, features):
        mask = features["attention_mask"][..., None]
        return {"sentence_embedding": (self.embedding(features["input_ids"]) * mask).sum(dim=1)}


def _features(columns):
    """Texts of 5, 2, 3 and 1 tokens; every column has others."""
    torch.manual_seed(1)
    mask = (torch.arange(5) < torch.tensor([5, 2, 3, 1])[:, None]).long()
    return [{"input_ids": torch.randint(20, mask.shape), "attention_mask": mask} for _ in range(columns)]


def _infonce(columns, log_scale):
    """Torch's cross-entropy of the cosines, positives before negatives; autograd does the rest."""
    queries, *documents = [normalize(column, dim=1) for column in columns]
    scores = queries @ torch.cat(documents).T * log_scale.exp()
    return cross_entropy(scores, torch.arange(len(queries)))


def _close(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        assert one.abs().max() > 1e-3


@pytest.mark.parametrize("options", [{}, {"dims": (WIDTH, 3)}, {"both_directions": True}])
def test_two_processes_get_the_gradients_of_the_joined_batch(monkeypatch, options):
    """Their mean, which data-parallel training takes, is the gradient of the whole batch."""
    torch.manual_seed(0)
    options = {"temperature": 0.2, "learnable_temperature": True} | options
    columns = [torch.randn(2 * ROWS, WIDTH, requires_grad=True) for _ in range(3)]
    whole = AsymInfoNCELoss(BagOfTokens(), **options)
    expected = whole.compute_loss_from_embeddings(columns, None)
    *of_columns, of_scale = torch.autograd.grad(expected, [*columns, whole.log_scale])
    processes = Processes(monkeypatch)

    def results(rank, **more):
        own = [column.detach().split(ROWS)[rank].clone().requires_grad_() for column in columns]
        loss = AsymInfoNCELoss(BagOfTokens(), **options, **more)
        value = loss.compute_loss_from_embeddings(own, None)
        return [value.detach(), *torch.autograd.grad(value, [*own, loss.log_scale])]

    values, *halves, scales = zip(
        *processes.run(lambda rank: results(rank, gather_across_devices=True)), strict=True
    )
    _close(
        [torch.stack(values).mean(), torch.stack(scales).mean(), *(torch.cat(both) / 2 for both in halves)],
        [expected.detach(), of_scale, *of_columns],
    )
    alone = torch.stack([value for value, *_ in processes.run(results)]).mean()
    assert expected - alone > 0.1, "by default a process has its own negatives alone"


def test_a_document_that_scores_as_much_as_the_positive_stays_with_a_margin_of_zero():
    """Two rows with one and the same document: each query chooses between equals, which costs log 2."""
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    loss = AsymInfoNCELoss(BagOfTokens(), false_negative_margin=0.0)
    value = loss.compute_loss_from_embeddings([vectors, vectors.clone()], None)
    assert value.item() == pytest.approx(math.log(2), rel=1e-5)


def test_each_query_is_scored_once_and_no_more_scores_are_held_than_allowed(monkeypatch):
    monkeypatch.setattr(asym_infonce, "MAX_SCORES", 30)
    seen = []

    class Recording(AsymInfoNCELoss):
        def parts(self, queries, documents, scope):
            seen.append((scope.rows, len(scope.rows) * len(documents)))
            return super().parts(queries, documents, scope)

    Recording(BagOfTokens()).compute_loss_from_embeddings([torch.randn(5, WIDTH) for _ in range(4)], None)
    assert torch.cat([rows for rows, _ in seen]).tolist() == [0, 1, 2, 3, 4]
    assert max(scores for _, scores in seen) <= 30


@pytest.mark.parametrize("limits", [{}, {"mini_batch_size": 2}])
def test_stored_documents_are_cut_to_the_width_of_the_queries(limits):
    model, features = BagOfTokens(), _features(1)
    torch.manual_seed(2)
    labels = torch.randn(ROWS, 3, WIDTH + 5)  # of the query, its positive and a negative
    value = AsymInfoNCELoss(model, temperature=0.2, **limits)(features, labels)
    queries = model(features[0])["sentence_embedding"]
    columns = [queries, labels[:, 1, :WIDTH], labels[:, 2, :WIDTH]]
    torch.testing.assert_close(value.detach(), _infonce(columns, torch.tensor(math.log(5))).detach())
