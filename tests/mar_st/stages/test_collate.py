from __future__ import annotations

import pytest
import torch

from mar_st.errors import MarError
from mar_st.stages import collate
from mar_st.stages.collate import TokenDropout
from mar_st.stages.contrastive import train_contrastive
from tests.mar_st.stages.helpers import encoder, mar, settings, source, stage, weights

TEXTS = ["头疼发热怎么办", "高血压吃什么药好呢医生", "咳嗽"] * 40


def _batch(model, task=None):
    batch = {f"query_{name}": value for name, value in model.preprocess(TEXTS, task=task).items()}
    return batch | ({"query_task": task} if task else {})


def _kept(batch):
    """Tokens of each text that are left, with their positions."""
    mask = batch["query_attention_mask"].bool()
    positions = batch.get("query_position_ids", torch.arange(mask.shape[1]).expand(mask.shape))
    return [
        list(zip(positions[row][mask[row]].tolist(), tokens[mask[row]].tolist(), strict=True))
        for row, tokens in enumerate(batch["query_input_ids"])
    ]


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("task", [None, "query", "document"])
def test_a_share_of_the_tokens_is_hidden_and_no_special_one(task, placed, monkeypatch):
    if not placed:
        monkeypatch.setattr(collate, "POSITION_IDS_ONLY", frozenset())
    model = mar() if task else encoder()
    hide = TokenDropout(model, 0.3, seed=1, epoch=lambda: 0)
    before, after = _batch(model, task), _batch(model, task)
    hide(after, "query", TEXTS)
    assert ("query_position_ids" in after) == placed
    special = hide.special[task or ""]
    whole = hidden = 0
    for all_, left in zip(_kept(before), _kept(after), strict=True):
        assert left == [token for token in all_ if token in left]
        assert {token for token in all_ if special[token[1]]} <= set(left)
        assert left[0] == all_[0]
        plain = [token for token in all_[1:] if not special[token[1]]]
        whole += len(plain)
        hidden += len(set(plain) - set(left))
    assert hidden / whole == pytest.approx(0.3, abs=0.05)
    if placed:  # no column is padding in all rows
        assert after["query_attention_mask"].any(dim=0).all()
        assert after["query_input_ids"].shape <= before["query_input_ids"].shape
        assert all(value.is_contiguous() for value in after.values() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model_type", sorted(collate.POSITION_IDS_ONLY & {"gte", "qwen3", "bert"}))
def test_vectors_without_the_hidden_tokens_are_those_with_them_masked(model_type, side, monkeypatch):
    model = encoder(model_type).eval()
    model.tokenizer.padding_side = side
    results = []
    for placed in (frozenset(), collate.POSITION_IDS_ONLY):
        monkeypatch.setattr(collate, "POSITION_IDS_ONLY", placed)
        batch = _batch(model)
        TokenDropout(model, 0.4, seed=1, epoch=lambda: 0)(batch, "query", TEXTS)
        features = {name.removeprefix("query_"): value for name, value in batch.items()}
        results.append((features["input_ids"].shape[1], model(features)["sentence_embedding"]))
    (wide, masked), (narrow, closed) = results
    assert narrow < wide
    torch.testing.assert_close(closed, masked, rtol=1e-4, atol=1e-5)


def test_a_prompt_that_is_not_pooled_keeps_its_place():
    model = encoder()
    batch = _batch(model) | {"query_prompt_length": 3}
    width = batch["query_input_ids"].shape[1]
    TokenDropout(model, 0.5, seed=1, epoch=lambda: 0)(batch, "query", TEXTS)
    assert batch["query_attention_mask"].shape[1] == width
    assert not batch["query_attention_mask"].all()


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
def test_token_dropout_changes_training_and_gradcache_agrees(tmp_path, mini_batch_size):
    trained = []
    for share in (0.0, 0.4, 0.4):
        model = encoder()
        made = stage("contrastive", token_dropout=share, mini_batch_size=mini_batch_size if trained else None)
        train_contrastive(model, [source()], made, settings(tmp_path, name=str(len(trained))), {})
        trained.append(weights(model))
    plain, first, second = trained
    assert any(not torch.equal(plain[name], first[name]) for name in plain)
    for name in first:
        torch.testing.assert_close(second[name], first[name], rtol=1e-4, atol=1e-5)
