"""RetroMAE: masked auto-encoding that puts a text into its sentence vector; its decoder of one layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.model import BaseModel
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sentence_transformers import SentenceTransformer
    from transformers import PretrainedConfig


#: Mask patterns drawn per text; every row of the decoder takes one of them.
PATTERNS_PER_TEXT = 256
#: Shares of the masked tokens that are replaced by the mask token, and by a random one.
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
#: Targets whose logits are held at a time; with more targets, logits are computed again in the backward pass.
MAX_TARGETS = 2048


class RetroMAELoss(nn.Module):
    """RetroMAE v1 with enhanced decoding (arXiv 2205.12035, sections 3.1 to 3.3).

    The encoder reads a text of which `encoder_mask` of the words are masked and predicts them (`L_enc`): of
    the tokens of these words 80 % are replaced by the mask token, 10 % by a random token, and 10 % do not
    change, as in BERT and in the collator that RetroMAE was published with
    (`DataCollatorForWholeWordMask`). Its CLS state `h` is the sentence vector. A decoder of one layer
    predicts *every* token from `h`, its position and the tokens that its row sees, about `1 - decoder_mask`
    of the others (`L_dec`):

        L = L_enc + L_dec,    both mean cross-entropies over their targets, one shared head

    Row `i` never sees token `i` and always sees position 0, which holds `h`; special tokens are never hidden
    and are not targets. Masks are drawn with torch's generator, which checkpoints keep.

    Args:
        model: `[Transformer, ...]` of an encoder whose texts begin with CLS.
        encoder_mask: Share of the words that the encoder does not see.
        decoder_mask: Share of the tokens that a row of the decoder does not see.
        bf16: Compute under bfloat16 autocast.
        gather_across_devices: Take the means over the targets of all processes, so that a batch split over
            processes has the gradients of the whole batch.

    Requirements:
        1. One text column.

    Inputs:
        | columns | labels |
        |---------|--------|
        | (text)  | none   |

    Relations:
        - `DenoisingAutoEncoderLoss` decodes with a whole causal model from a text with words deleted; here
          the decoder is one layer, every row has its own mask, and the encoder is also trained as a masked
          language model.

    Example:
        ```python
        loss = RetroMAELoss(model)
        SentenceTransformerTrainer(model=model, args=args, train_dataset=texts, loss=loss).train()
        ```

    Raises:
        MarError: The tokenizer has no mask token and no substitute for it.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        encoder_mask: float = 0.3,
        decoder_mask: float = 0.5,
        bf16: bool = False,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.encoder_mask, self.decoder_mask, self.bf16 = encoder_mask, decoder_mask, bf16
        self.gather_across_devices = gather_across_devices
        transformer: Any = model[0]
        tokenizer, encoder = transformer.tokenizer, transformer.model
        embeddings = encoder.get_input_embeddings().weight
        self.mask_id, self.vocabulary = mask_token_id(tokenizer), len(tokenizer)
        self.decoder = EnhancedDecoder(encoder.config, transformer.max_seq_length).to(embeddings.device)
        self.head = MLMHead(embeddings.shape[1], embeddings.shape[0]).to(embeddings.device)
        self.special: Tensor
        self.continues: Tensor
        special = torch.zeros(embeddings.shape[0], dtype=torch.bool)
        special[[key for key in tokenizer.all_special_ids if key != tokenizer.unk_token_id]] = True
        self.register_buffer("special", special.to(embeddings.device), persistent=False)
        self.register_buffer(
            "continues", word_pieces(tokenizer, embeddings.shape[0]).to(embeddings.device), persistent=False
        )
        self.last_parts: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of one batch; its two parts are in `last_parts` afterwards."""
        del labels
        (column,) = sentence_features
        tokens, attended = column["input_ids"], column["attention_mask"].bool()
        plain = attended & ~self.special[tokens]
        masked = draw_words(plain, self.continues[tokens], self.encoder_mask)
        visible = draw_visible(attended, plain, self.decoder_mask)
        of_encoder, of_decoder = self._targets(masked, plain)
        corrupted = replace_tokens(tokens, masked, self.mask_id, self.vocabulary)
        transformer: Any = unwrapped(self.model)[0]
        encoder = transformer.model
        embeddings = encoder.get_input_embeddings()
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            states = encoder(input_ids=corrupted, attention_mask=column["attention_mask"]).last_hidden_state
            decoded = self.decoder(states[:, 0], embeddings(tokens), visible)
            weight = embeddings.weight
            parts = {
                "encoder": self._cross_entropy(states[masked], tokens[masked], weight) / of_encoder,
                "decoder": self._cross_entropy(decoded[plain], tokens[plain], weight) / of_decoder,
            }
        self.last_parts = {name: part.detach() for name, part in parts.items()}
        loss: Tensor = parts["encoder"] + parts["decoder"]
        return loss

    def _targets(self, masked: Tensor, plain: Tensor) -> tuple[Tensor, ...]:
        """Return the number of targets of each of the two means; the mean over the processes of a batch."""
        targets = torch.stack([masked.sum(), plain.sum()]).float()
        if self.gather_across_devices and torch.distributed.is_initialized():
            # The gradients are averaged over the processes, and so are the numbers of targets.
            torch.distributed.all_reduce(targets)
            targets = targets / torch.distributed.get_world_size()
        return tuple(targets.clamp(min=torch.finfo(torch.float32).tiny).unbind())

    def _cross_entropy(self, states: Tensor, targets: Tensor, embeddings: Tensor) -> Tensor:
        """Return the cross-entropy, summed over the targets."""
        if not len(targets):  # a batch of texts of one word
            return states.sum() * 0.0
        if len(targets) <= MAX_TARGETS:
            return self._summed(states, targets, embeddings)
        total = states.new_zeros((), dtype=torch.float32)
        parts = zip(torch.split(states, MAX_TARGETS), torch.split(targets, MAX_TARGETS), strict=True)
        for some_states, some_targets in parts:
            total = total + checkpoint(
                self._summed, some_states, some_targets, embeddings, use_reentrant=False
            )
        return total

    def _summed(self, states: Tensor, targets: Tensor, embeddings: Tensor) -> Tensor:
        logits = self.head(states, embeddings).float()
        return nn.functional.cross_entropy(logits, targets, reduction="sum")


def unwrapped(model: Any) -> Any:
    """Return the model itself, also if it is wrapped (compiled, or for several devices as by DeepSpeed)."""
    while not isinstance(model, BaseModel):
        model = getattr(model, "_orig_mod", None) or model.module
    return model


def mask_token_id(tokenizer: Any) -> int:
    """Return the id that replaces a masked token: the mask token, or the unknown token if there is none.

    Raises:
        MarError: The tokenizer has neither.
    """
    token_id = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.unk_token_id
    if token_id is None:
        raise MarError(
            f"RetroMAE masks tokens, and {type(tokenizer).__name__} has neither a mask nor an unknown token. "
            "Set tokenizer.mask_token, or leave the stage out."
        )
    return int(token_id)


def word_pieces(tokenizer: Any, size: int) -> Tensor:
    """Mark the tokens that continue the word of the previous token, `(size,)` bool.

    WordPiece marks these with `##`; SentencePiece marks the others with `▁`. A tokenizer with neither mark
    has words of one token. Chinese has no spaces, so SentencePiece does not mark where its words start.
    """
    vocabulary = tokenizer.get_vocab()
    starts = sum(token.startswith("▁") for token in vocabulary)
    sentencepiece = starts > 0.05 * len(vocabulary)
    continues = torch.zeros(size, dtype=torch.bool)
    for token, key in vocabulary.items():
        inner = sentencepiece and not token.startswith("▁") and not "\u2e80" <= token[:1] <= "\u9fff"
        if inner or token.startswith("##"):
            continues[key] = True
    return continues


def draw_words(plain: Tensor, continues: Tensor, rate: float) -> Tensor:
    """Return the tokens of randomly drawn words, `(batch, length)` bool.

    Args:
        plain: Tokens that are neither special nor padding, `(batch, length)` bool.
        continues: Tokens that continue a word, `(batch, length)` bool.
        rate: Share of the words to draw; at least one from every text that has a word.
    """
    before = torch.cat([torch.zeros_like(plain[:, :1]), plain[:, :-1]], dim=1)
    word = (plain & ~(continues & before)).cumsum(dim=1)
    noise = torch.rand(plain.shape, device=plain.device)
    # The noise of a word is that of the position with its number; position 0 stands for no word.
    chance = noise.gather(1, word.clamp(max=plain.shape[1] - 1))
    drawn = plain & (chance < rate)
    none = ~drawn.any(dim=1) & plain.any(dim=1)
    lowest = chance.masked_fill(~plain, torch.inf).amin(dim=1, keepdim=True)
    return drawn | (none[:, None] & plain & (chance == lowest))


def replace_tokens(tokens: Tensor, masked: Tensor, mask_id: int, vocabulary: int) -> Tensor:
    """Replace the tokens at `masked` by the mask token (80 %) or a random token (10 %), or keep them (10 %).

    Args:
        tokens: Token ids, `(batch, length)` int64.
        masked: Tokens to predict, `(batch, length)` bool.
        mask_id: Id of the mask token.
        vocabulary: Number of ids that a random token is drawn from.
    """
    chance = torch.rand(tokens.shape, device=tokens.device)
    drawn = torch.randint_like(tokens, vocabulary)
    replaced = torch.where(chance < MASK_SHARE + RANDOM_SHARE, drawn, tokens)
    replaced = replaced.masked_fill(chance < MASK_SHARE, mask_id)
    return torch.where(masked, replaced, tokens)


def draw_visible(attended: Tensor, plain: Tensor, rate: float) -> Tensor:
    """Draw the attention mask of the decoder, `(batch, length, length)` bool: the tokens each row sees.

    Args:
        attended: Tokens that are not padding, `(batch, length)` bool.
        plain: Tokens that are neither special nor padding, `(batch, length)` bool.
        rate: Share of the plain tokens that a row does not see, besides its own.
    """
    batch, length = plain.shape
    patterns = min(PATTERNS_PER_TEXT, length)
    hidden = torch.rand(batch, patterns, length, device=plain.device) < rate
    chosen = torch.randint(patterns, (batch, length), device=plain.device)
    rows = hidden.gather(1, chosen[:, :, None].expand(-1, -1, length))
    own = torch.eye(length, dtype=torch.bool, device=plain.device)
    visible = attended[:, None] & ~((rows | own) & plain[:, None])
    visible[:, :, 0] = True
    return visible


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
