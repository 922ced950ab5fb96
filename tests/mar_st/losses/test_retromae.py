from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.nn.functional import cross_entropy

from mar_st.errors import MarError
from mar_st.losses import retromae
from mar_st.losses.retromae import (
    EnhancedDecoder,
    RetroMAELoss,
    draw_visible,
    draw_words,
    replace_tokens,
    word_pieces,
)
from mar_st.model.encoders import load_encoder
from tests.mar_st.stages.helpers import TRIPLES, encoder


@pytest.fixture
def model(query_source):
    return SentenceTransformer(modules=load_encoder(query_source, "query"), device="cpu")


def _masks(batch=40, length=50):
    attended = torch.ones(batch, length, dtype=torch.bool)
    attended[::2, 40:] = False
    plain = attended.clone()
    plain[:, 0] = False
    plain[::2, 39] = plain[1::2, 49] = False
    return attended, plain


def test_no_row_sees_its_own_token_and_all_see_the_sentence_vector():
    torch.manual_seed(0)
    attended, plain = _masks()
    visible = draw_visible(attended, plain, 0.5)
    diagonal = visible.diagonal(dim1=1, dim2=2)
    assert not (diagonal & plain).any()
    assert visible[:, :, 0].all()
    assert (visible | ~attended[:, None])[~plain[:, None].expand_as(visible)].all(), (
        "special tokens are hidden"
    )
    assert not (visible & ~attended[:, None])[:, :, 1:].any(), "padding is seen"


def test_masks_have_the_given_rates_and_differ_by_row():
    torch.manual_seed(0)
    attended, plain = _masks()
    for rate in (0.1, 0.5, 0.7):
        seen = draw_visible(attended, plain, rate)[plain[:, None].expand(-1, 50, -1)].float().mean()
        assert seen == pytest.approx((1 - rate) * (1 - 1 / 45), abs=0.02)
    visible = draw_visible(attended, plain, 0.5)
    assert len({tuple(row.tolist()) for row in visible[1]}) > 25
    drawn = draw_words(plain, torch.zeros_like(plain), 0.3)
    assert drawn[plain].float().mean() == pytest.approx(0.3, abs=0.03)
    assert not drawn[~plain].any()


def test_words_are_masked_whole():
    torch.manual_seed(0)
    plain = torch.ones(200, 12, dtype=torch.bool)
    plain[:, 0] = plain[:, -1] = False
    continues = torch.zeros_like(plain)
    continues[:, [2, 3, 6]] = True  # words: 1-3, 4, 5-6, 7, 8, 9, 10
    drawn = draw_words(plain, continues, 0.3)
    assert (drawn[:, 1] == drawn[:, 2]).all()
    assert (drawn[:, 2] == drawn[:, 3]).all()
    assert (drawn[:, 5] == drawn[:, 6]).all()
    assert (drawn[:, 6] != drawn[:, 7]).any()
    assert drawn.any(dim=1).all()


def test_a_text_of_which_no_word_is_drawn_gives_one():
    torch.manual_seed(0)
    _, plain = _masks()
    plain[3] = False
    continues = torch.zeros_like(plain)
    continues[:, 2] = True  # the word 1-2
    drawn = draw_words(plain, continues, 1e-9)
    assert not drawn[~plain].any()
    words = (drawn & ~continues).sum(dim=1)
    assert words.tolist() == [int(row != 3) for row in range(40)]
    assert torch.equal(drawn[:, 1], drawn[:, 2])


def test_every_word_has_a_draw_of_its_own_even_if_all_tokens_are_words():
    torch.manual_seed(0)
    plain = torch.ones(200, 6, dtype=torch.bool)
    draw_words(plain, torch.zeros_like(plain), 0.5)
    plain[:, 0] = False
    drawn = draw_words(plain, torch.zeros_like(plain), 0.5)[:, 1:]
    for one in range(5):
        for other in range(one):
            assert (drawn[:, one] != drawn[:, other]).any()


def test_masked_tokens_are_replaced_as_in_bert():
    torch.manual_seed(0)
    tokens = torch.randint(10, 1000, (200, 100))
    masked = torch.rand(tokens.shape) < 0.3
    replaced = replace_tokens(tokens, masked, 4, 1000)
    assert torch.equal(replaced[~masked], tokens[~masked])
    of_masked = replaced[masked]
    shares = [
        float(share.float().mean())
        for share in (
            of_masked == 4,
            of_masked == tokens[masked],
            (of_masked != 4) & (of_masked != tokens[masked]),
        )
    ]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    random = of_masked[(of_masked != 4) & (of_masked != tokens[masked])]
    assert (random.min() < 50, random.max() > 950) == (True, True)


@pytest.mark.parametrize(("mask", "unknown", "expected"), [(0, 1, 0), (None, 1, 1), (None, 0, 0)])
def test_the_unknown_token_replaces_masked_tokens_where_there_is_no_mask_token(mask, unknown, expected):
    tokenizer = SimpleNamespace(mask_token_id=mask, unk_token_id=unknown)
    assert retromae.mask_token_id(tokenizer) == expected


def test_a_tokenizer_without_mask_and_unknown_tokens_is_refused():
    with pytest.raises(MarError, match="SimpleNamespace has neither a mask nor an unknown token"):
        retromae.mask_token_id(SimpleNamespace(mask_token_id=None, unk_token_id=None))


def test_a_batch_without_words_costs_nothing(model):
    tokens = torch.tensor([[2, 3], [2, 3]])  # [CLS] and [SEP]
    loss = RetroMAELoss(model)
    value = loss([{"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}])
    value.backward()
    assert value.item() == 0.0
    assert all(p.grad.isfinite().all() for p in loss.parameters() if p.grad is not None)


class _Vocabulary:
    def __init__(self, *tokens):
        self.tokens = {token: index for index, token in enumerate(tokens)}

    def get_vocab(self):
        return self.tokens


def test_word_pieces_are_recognised_by_their_marks():
    assert word_pieces(_Vocabulary("ab", "##cd", "头"), 3).tolist() == [False, True, False]
    assert word_pieces(_Vocabulary("▁ab", "cd", "头疼"), 3).tolist() == [False, True, False]
    assert word_pieces(_Vocabulary("▁ab", "c", "头", "b头"), 4).tolist() == [False, True, False, True]
    rare = ("▁", *(f"word{number}" for number in range(30)))  # a mark that begins no word here
    assert not word_pieces(_Vocabulary(*rare), 31).any()
    assert not word_pieces(_Vocabulary("ab", "cd", "头"), 3).any()


def test_equals_a_loop_over_rows(model, queries, monkeypatch):
    """The decoder, row by row with an attention written out, on masks drawn once."""
    torch.manual_seed(3)
    model.eval()
    loss = RetroMAELoss(model)
    features = model.preprocess(queries)
    tokens, mask = features["input_ids"], features["attention_mask"].bool()
    plain = mask & ~loss.special[tokens]
    masked = draw_words(plain, loss.continues[tokens], 0.3)
    visible = draw_visible(mask, plain, 0.5)
    monkeypatch.setattr(retromae, "draw_words", lambda *_: masked)
    monkeypatch.setattr(retromae, "draw_visible", lambda *_: visible)
    corrupted = torch.where(masked, loss.mask_id, tokens)
    monkeypatch.setattr(retromae, "replace_tokens", lambda *_: corrupted)
    value = loss([features])

    encoder, decoder = model[0].model, loss.decoder
    weight = encoder.get_input_embeddings().weight
    states = encoder(input_ids=corrupted, attention_mask=features["attention_mask"]).last_hidden_state
    expected = cross_entropy(loss.head(states[masked], weight), tokens[masked])
    logits, targets = [], []
    width = weight.shape[1] // decoder.heads
    for b, i in plain.nonzero().tolist():
        row = states[b, 0] + decoder.positions.weight[i]
        context = [states[b, 0] + decoder.positions.weight[0]]
        context += [weight[tokens[b, j]] + decoder.positions.weight[j] for j in range(1, tokens.shape[1])]
        kept = [j for j in range(tokens.shape[1]) if visible[b, i, j]]
        heads = []
        for h in range(decoder.heads):
            part = slice(h * width, (h + 1) * width)
            scores = torch.stack(
                [decoder.query(row)[part] @ decoder.key(context[j])[part] / width**0.5 for j in kept]
            )
            values = torch.stack([decoder.value(context[j])[part] for j in kept])
            heads.append(scores.softmax(0) @ values)
        attended = decoder.attention_norm(row + decoder.output(torch.cat(heads)))
        up = torch.nn.functional.gelu(decoder.up(attended))
        logits.append(loss.head(decoder.output_norm(attended + decoder.down(up)), weight))
        targets.append(tokens[b, i])
    expected = expected + cross_entropy(torch.stack(logits), torch.stack(targets))
    torch.testing.assert_close(value, expected, atol=1e-4, rtol=1e-4)
    assert set(loss.last_parts) == {"encoder", "decoder"}


def test_logits_in_parts_give_the_same_loss_and_gradients(monkeypatch):
    results = []
    for targets in (10_000, 7):
        monkeypatch.setattr(retromae, "MAX_TARGETS", targets)
        model = encoder()
        torch.manual_seed(4)
        loss = RetroMAELoss(model)
        features = model.preprocess([triple.query for triple in TRIPLES])
        value = loss([features])
        value.backward()
        gradients = {name: weight.grad for name, weight in loss.named_parameters() if weight.grad is not None}
        results.append((value, gradients))
    (whole, expected), (parts, gradients) = results
    torch.testing.assert_close(parts, whole)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


def test_weights_start_as_wide_as_those_of_the_encoder():
    torch.manual_seed(0)
    for std in (0.5, 0.02):
        config = SimpleNamespace(hidden_size=64, num_attention_heads=2, initializer_range=std)
        decoder = EnhancedDecoder(config, max_length=64)
        for name, parameter in decoder.named_parameters():
            if parameter.ndim == 2:
                assert parameter.std().item() == pytest.approx(std, rel=0.1), name
            elif "norm" not in name:
                assert not parameter.any(), name
