from __future__ import annotations

import pytest
import torch

from mar_st.errors import MarError
from mar_st.stages.contrastive import train_contrastive
from mar_st.stages.joint import train_joint
from mar_st.stages.token_dropout import TokenDropout
from tests.mar_st.stages.helpers import changed, encoder, mar, settings, source, stage, weights

TEXTS = ["头疼发热怎么办", "高血压吃什么药好呢医生", "咳嗽"] * 40


def _batch(model, task=None):
    batch = {f"query_{name}": value for name, value in model.preprocess(TEXTS, task=task).items()}
    return batch | ({"query_task": task} if task else {})


@pytest.mark.parametrize("task", [None, "query", "document"])
def test_a_share_of_the_tokens_is_hidden_and_no_special_one(task):
    model = mar() if task else encoder()
    hide = TokenDropout(model, 0.3, seed=1, epoch=lambda: 0)
    before, after = _batch(model, task), _batch(model, task)
    hide(after, "query", TEXTS)
    mask, left = before["query_attention_mask"].bool(), after["query_attention_mask"].bool()
    special = hide.special[task or ""][before["query_input_ids"]]
    assert not (left & ~mask).any()
    assert (left == mask)[special].all()
    first = mask.float().argmax(dim=1)
    assert left[torch.arange(len(TEXTS)), first].all()
    plain = mask & ~special
    plain[torch.arange(len(TEXTS)), first] = False
    assert (plain & ~left).sum() / plain.sum() == pytest.approx(0.3, abs=0.05)
    assert torch.equal(before["query_input_ids"], after["query_input_ids"])


def test_the_draw_follows_from_seed_epoch_and_texts():
    model, epoch = encoder(), [0]

    def drawn(seed=1):
        batch = _batch(model)
        TokenDropout(model, 0.5, seed=seed, epoch=lambda: epoch[0])(batch, "query", TEXTS)
        return batch["query_attention_mask"]

    first = drawn()
    torch.manual_seed(99)
    assert torch.equal(drawn(), first)
    assert not torch.equal(drawn(seed=2), first)
    epoch[0] = 1
    assert not torch.equal(drawn(), first)


def test_batches_without_a_mask_are_refused():
    batch = {"query_input_ids": torch.ones(1, 4, dtype=torch.long)}
    with pytest.raises(MarError, match="token_dropout works through the attention mask"):
        TokenDropout(encoder(), 0.5, seed=1, epoch=lambda: 0)(batch, "query", ["x"])


@pytest.mark.parametrize("mini_batch_size", [None, 4])
def test_training_with_it_is_other_training_and_the_same_with_gradcache(tmp_path, mini_batch_size):
    found = []
    for share in (0.0, 0.4, 0.4):
        model = encoder()
        made = stage("contrastive", token_dropout=share, mini_batch_size=mini_batch_size if found else None)
        train_contrastive(model, [source()], made, settings(tmp_path, name=str(len(found))), {})
        found.append(weights(model))
    plain, first, second = found
    assert any(not torch.equal(plain[name], first[name]) for name in plain)
    for name in first:
        torch.testing.assert_close(second[name], first[name], rtol=1e-4, atol=1e-5)


def test_both_routes_of_a_mar_train_with_it(tmp_path):
    model = mar()
    before = weights(model)
    train_joint(model, [source()], stage("joint", token_dropout=0.2), settings(tmp_path), {})
    assert {name.split(".")[2] for name in changed(model, before)} == {"query", "document"}
