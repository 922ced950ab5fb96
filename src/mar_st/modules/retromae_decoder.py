"""The one-layer decoder of RetroMAE's enhanced decoding, and the head that it shares with the encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class MLMHead(nn.Module):
    """Dense, GELU, layer norm, and the token embeddings as output matrix.

    Args:
        hidden_size: Width of the encoder.
        vocab_size: Rows of its token embeddings.
    """

    def __init__(self, hidden_size: int, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """Return logits `(n, vocab_size)` for states `(n, hidden_size)`; `embeddings` are the encoder's."""
        states = self.norm(nn.functional.gelu(self.dense(states)))
        return nn.functional.linear(states, embeddings, self.bias)


class EnhancedDecoder(nn.Module):
    """One transformer layer that rebuilds a text from its sentence vector (RetroMAE, section 3.3).

    The query stream is the sentence vector at every position, the key and value stream the sentence vector
    at position 0 and the token embeddings behind it; each row has its own mask. Positions are learned here:
    with rotary positions all rows of the query stream would be the same vector.

    Args:
        config: Configuration of the encoder, which sets the width and the number of heads.
        max_length: Maximum number of positions.
    """

    def __init__(self, config: PretrainedConfig, max_length: int) -> None:
        super().__init__()
        width = int(config.hidden_size)
        self.heads = int(config.num_attention_heads)
        self.positions = nn.Embedding(max_length, width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        std = float(getattr(config, "initializer_range", 0.02))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=std)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, sentences: Tensor, embeddings: Tensor, visible: Tensor) -> Tensor:
        """Return the hidden states of every position.

        Args:
            sentences: Sentence vectors `(batch, width)`.
            embeddings: Token embeddings of the unmasked text `(batch, length, width)`.
            visible: `(batch, length, length)` bool: whether a row sees a position.

        Returns:
            `(batch, length, width)`.
        """
        batch, length, width = embeddings.shape
        positions = self.positions.weight[:length]
        rows = sentences[:, None] + positions
        context = torch.cat([sentences[:, None].to(embeddings.dtype), embeddings[:, 1:]], dim=1) + positions

        def split(states: Tensor) -> Tensor:
            return states.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        attended = nn.functional.scaled_dot_product_attention(
            split(self.query(rows)),
            split(self.key(context)),
            split(self.value(context)),
            attn_mask=visible[:, None],
        )
        attended = self.output(attended.transpose(1, 2).reshape(batch, length, width))
        states = self.attention_norm(rows + attended)
        output: Tensor = self.output_norm(states + self.down(nn.functional.gelu(self.up(states))))
        return output
