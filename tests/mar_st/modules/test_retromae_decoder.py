"""The decoder of RetroMAE and its head: what a row may see, and what it depends on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mar_st.losses.retromae import EnhancedDecoder, MLMHead

BATCH, LENGTH, WIDTH = 2, 5, 8
CONFIG = SimpleNamespace(hidden_size=WIDTH, num_attention_heads=2, initializer_range=0.5)


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    return EnhancedDecoder(CONFIG, max_length=LENGTH + 3)


@pytest.fixture
def inputs():
    """Sentence vectors, embeddings, and masks by which each row sees position 0 and one other."""
    torch.manual_seed(1)
    visible = torch.zeros(BATCH, LENGTH, LENGTH, dtype=torch.bool)
    visible[:, :, 0] = True
    for row in range(LENGTH):
        visible[:, row, (row + 1) % LENGTH] = True
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, LENGTH, WIDTH), visible


def test_a_row_depends_on_the_tokens_that_it_sees(decoder, inputs):
    sentences, embeddings, visible = inputs
    expected = decoder(sentences, embeddings, visible)
    assert expected.shape == (BATCH, LENGTH, WIDTH)
    for position in range(1, LENGTH):
        changed = embeddings.clone()
        changed[:, position] += 1.0
        differs = (decoder(sentences, changed, visible) - expected).abs().amax(dim=-1) > 1e-5
        assert torch.equal(differs, visible[:, :, position])


def test_the_sentence_vector_takes_the_place_of_the_first_token(decoder, inputs):
    sentences, embeddings, visible = inputs
    expected = decoder(sentences, embeddings, visible)
    changed = embeddings.clone()
    changed[:, 0] = 100.0
    assert torch.equal(decoder(sentences, changed, visible), expected)
    other = sentences.clone()
    other[0] += 1.0
    differs = (decoder(other, embeddings, visible) - expected).abs().amax(dim=-1) > 1e-5
    assert differs.tolist() == [[True] * LENGTH, [False] * LENGTH]


def test_texts_and_lengths_beside_it_do_not_change_a_text(decoder, inputs):
    sentences, embeddings, visible = inputs
    together = decoder(sentences, embeddings, visible)
    alone = decoder(sentences[:1], embeddings[:1, :3], visible[:1, :3, :3] | torch.eye(3, dtype=torch.bool))
    seen = visible.clone()
    seen[:, :3, 3:] = False
    seen[:, :3, :3] |= torch.eye(3, dtype=torch.bool)
    torch.testing.assert_close(decoder(sentences, embeddings, seen)[:1, :3], alone)
    for row in range(BATCH):
        one = decoder(sentences[[row]], embeddings[[row]], visible[[row]])
        torch.testing.assert_close(one[0], together[row])


def test_equal_tokens_at_two_positions_give_two_vectors(decoder):
    everything = torch.ones(1, LENGTH, LENGTH, dtype=torch.bool)
    states = decoder(torch.ones(1, WIDTH), torch.ones(1, LENGTH, WIDTH), everything)[0]
    assert (states[1:] - states[:-1]).abs().amax(dim=-1).min() > 1e-3


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


def test_the_head_scores_states_against_the_token_embeddings():
    torch.manual_seed(0)
    head, embeddings = MLMHead(WIDTH, 7), torch.randn(7, WIDTH)
    states = torch.randn(3, WIDTH)
    logits = head(states, embeddings)
    assert logits.shape == (3, 7)
    with torch.no_grad():
        head.bias[4] = 2.5
    shifted = head(states, embeddings) - logits
    torch.testing.assert_close(shifted, torch.tensor([0, 0, 0, 0, 2.5, 0, 0]).expand(3, 7))
    order = torch.randperm(7)
    head.bias.data.zero_()
    torch.testing.assert_close(head(states, embeddings[order]), logits[:, order])
    assert not [name for name, parameter in head.named_parameters() if parameter.shape == embeddings.shape]
