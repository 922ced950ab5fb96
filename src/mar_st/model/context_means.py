"""Embeddings for an encoder that keeps the last layers of another: mean hidden states replace its own.

An encoder that is cut to its last layers feeds them token embeddings, but these layers were trained on the
outputs of the layers below. Here each token's embedding becomes the mean of its hidden states, over the texts
that it occurs in, at the input of the first layer that is kept (one vector per token, pooled over contexts,
as the static embeddings of Bommasani et al., ACL 2020; here the remaining layers read them). The cut encoder
then starts near the whole one, before any training; docs/studies/e5.md has figures.

Frequent pairs of adjacent tokens may get vectors of their own, which are added to the embeddings of both
tokens (`mar_st.modules.bigrams`). They come from the same averages, and bring the start nearer still.

Two kinds of embeddings are supported: those of the BERT family (BERT, RoBERTa, XLM-R, GTE), which are
normalised, and those of decoders such as Qwen3 and Llama, which are not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import torch
from sentence_transformers import util
from torch import Tensor
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.model.layers import (
    InputEmbeddings,
    keep_layers,
    layer_input,
    norm_before,
    passes,
    without_norm,
)
from mar_st.modules.bigrams import Bigrams, BigramTransformer, pair_keys, pair_rows
from mar_st.recipes.rules import CONTEXT_TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sentence_transformers.sentence_transformer.modules import Transformer
    from torch import nn

#: Number of occurrences that the guess for a token counts as; the guess for positions is zero.
PRIOR = 1.0

#: Number of occurrences that the guess for a pair of tokens counts as, which is zero. On unseen texts 2 and 6
#: explained the same share of the hidden states of multilingual-e5-small (.856 and .855).
PAIR_PRIOR = 4.0

#: Minimum number of occurrences of a pair that gets vectors.
MIN_PAIR_COUNT = 3

#: Alternations of the fit between tokens, positions and pairs.
SWEEPS = 4

#: Share of the mean diagonal that the regression of the guesses adds to it.
RIDGE = 1e-3


@dataclass
class HiddenMeans:
    """Sums of an encoder's hidden states at the input of one of its layers, by several groups.

    The groups are `token`, `place` (position in the text) and, with pairs, `first` and `second`: the pair
    whose first, or second, token an occurrence is.

    Attributes:
        rows: Group -> row of each occurrence of a token, blocks of `(occurrences,)`; -1: none. On the CPU, as
            all tensors here.
        sums: Group -> sums, `(rows, width)` float32.
        norm: Normalisation whose output the layer reads; `None` for decoders.
        pairs: Pairs of tokens that get vectors, `(pairs, 2)` int64, sorted; `None`: there are none.
    """

    rows: dict[str, list[Tensor]]
    sums: dict[str, Tensor]
    norm: nn.LayerNorm | None = None
    pairs: Tensor | None = None

    @classmethod
    def of(
        cls,
        transformer: Transformer,
        layer: int,
        texts: Sequence[str],
        *,
        pairs: int = 0,
        max_length: int | None = None,
        autocast: bool = False,
    ) -> Self:
        """Return the sums over texts; the encoder is moved to a GPU, if there is one, and back.

        Args:
            transformer: The whole encoder; dropout is off.
            layer: Index of the layer whose inputs are summed, from 1.
            texts: Texts as the cut encoder will see them, prompts included; see `sample`.
            pairs: Maximum number of pairs of adjacent tokens that get vectors, the most frequent ones in the
                texts. Their sums take 8 bytes per pair and dimension.
            max_length: Maximum number of tokens per text; default the encoder's.
            autocast: Compute the hidden states in bfloat16; sums are float32 all the same.

        Raises:
            MarError: There are no texts, the embeddings are of an unknown kind, or pairs are wanted
                and none is frequent enough.
        """
        if not len(texts):
            raise MarError("Hidden states are averaged over texts; got none.")
        model: Any = transformer.model
        home, training = model.device, model.training
        limits = (
            max_length,
            transformer.max_seq_length,
            getattr(model.config, "max_position_embeddings", None),
        )
        limit, own_length = int(min(one for one in limits if one)), transformer.max_seq_length
        model.eval().to(util.get_device_name())
        transformer.max_seq_length = limit
        try:
            parts = InputEmbeddings.of(model)
            chosen = frequent_pairs(transformer, texts, pairs, limit) if pairs else None
            rows, width = parts.word.weight.shape
            sizes = {"token": rows, "place": limit}
            if chosen is not None:
                sizes |= {"first": len(chosen), "second": len(chosen)}
            means = cls(
                rows={group: [] for group in sizes},
                sums={group: torch.zeros(size, width) for group, size in sizes.items()},
                norm=None if parts.norm is None else norm_before(model, layer).cpu(),
                pairs=chosen,
            )
            bar = tqdm(total=len(texts), desc="mean hidden states", unit="texts", delay=10)
            for features in passes(transformer, texts, limit):
                with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
                    states = layer_input(model, features, layer)
                means._add(states, features)
                bar.update(len(features["input_ids"]))
            bar.close()
        finally:
            transformer.max_seq_length = own_length
            model.train(training).to(home)
        return means

    @torch.no_grad()
    def _add(self, states: Tensor, features: dict[str, Tensor]) -> None:
        ids, mask = features["input_ids"].cpu(), features["attention_mask"].cpu().bool()
        place = mask.cumsum(dim=1) - 1
        # Decoders concentrate attention and large values on the first token of a text, whichever it is.
        kept = mask & (place > 0) if self.norm is None else mask
        rows = {"token": ids, "place": place}
        if self.pairs is not None:
            of_pairs = pair_rows(pair_keys(self.pairs[:, 0], self.pairs[:, 1]), ids)
            rows["first"] = torch.nn.functional.pad(of_pairs, (0, 1), value=-1)
            rows["second"] = torch.nn.functional.pad(of_pairs, (1, 0), value=-1)
        kept_states = states.cpu()[kept].float()
        for group, of_group in rows.items():
            row = of_group[kept]
            self.rows[group].append(row)
            self.sums[group].index_add_(0, row[row >= 0], kept_states[row >= 0])

    @torch.no_grad()  # not inference_mode: a stage that resumes copies into these tensors
    def write(self, cut: Transformer) -> Transformer:
        """Replace the embeddings of an encoder that starts at the layer, in place.

        With `x` the hidden state of an occurrence of token `v` at position `p`, before the scale and shift of
        the last normalisation, the new embeddings `e` and position embeddings `q` minimise the sum of
        `|x - e_v - q_p|^2` over the occurrences, or of `|x - e_v - q_p - f_a - s_b|^2` if it is the first
        token of pair `a` and the second of pair `b`. Tokens that do not occur get a guess, a ridge regression
        of the means on the encoder's own embeddings; rare ones are drawn to it, and vectors of rare pairs to
        zero. Encoders without position embeddings have no `q`.

        Args:
            cut: A copy of the encoder that was averaged, without the layers below.

        Returns:
            The encoder; a `BigramTransformer` with its weights if pairs get vectors.
        """
        target = InputEmbeddings.of(cut.model)
        vectors = _fit(self._groups(target))
        target.word.weight.copy_(vectors["token"])
        if target.types is not None:
            target.types.weight.zero_()
        if target.positions is not None:
            table = target.positions.weight
            table.zero_()
            offsets = vectors["place"]
            table[target.first : target.first + len(offsets)] = offsets[: len(table) - target.first].to(table)
        if target.norm is not None and self.norm is not None:
            target.norm.load_state_dict(self.norm.state_dict())
        if self.pairs is None:
            return cut
        first, second = (vectors[group].to(target.word.weight.dtype) for group in ("first", "second"))
        paired: Transformer = BigramTransformer.of(cut, Bigrams(self.pairs, first, second))
        return paired

    def _groups(self, target: InputEmbeddings) -> dict[str, _Group]:
        """Return the groups that the cut encoder has vectors for; the norm of their sums is undone."""
        groups = {}
        for group, sums in self.sums.items():
            if group == "place" and target.positions is None:
                continue
            rows = torch.cat(self.rows[group])
            count = torch.bincount(rows[rows >= 0], minlength=len(sums)).float()
            prior = PAIR_PRIOR if group in ("first", "second") else PRIOR
            plain = sums if self.norm is None else without_norm(self.norm, sums, count)
            groups[group] = _Group(rows, plain, count, prior)
        tokens = groups["token"]
        everything = torch.arange(len(tokens.sums), device=target.word.weight.device)
        own = target.output(everything, positions=False).cpu()
        tokens.guess = _guess(own, tokens.sums, tokens.count)
        return groups


@dataclass
class _Group:
    """A group of occurrences, and the prior of its vectors.

    Attributes:
        rows: Row of each occurrence, `(occurrences,)`; -1: none.
        sums: Sums of the hidden states, `(rows, width)`.
        count: Occurrences of each row, `(rows,)`.
        prior: Number of occurrences that the guess counts as.
        guess: The guess for each row; `None`: zero.
    """

    rows: Tensor
    sums: Tensor
    count: Tensor
    prior: float
    guess: Tensor | None = None


def _fit(groups: Mapping[str, _Group]) -> dict[str, Tensor]:
    """Return the vectors of each group, `(rows, width)`, whose sums are nearest to the hidden states."""
    together = {}
    for one, other in combinations(groups, 2):
        counts = _together(groups[one], groups[other])
        together[one, other], together[other, one] = counts, counts.t().coalesce()
    fitted: dict[str, Tensor] = {}
    for _ in range(SWEEPS if len(groups) > 1 else 1):
        for name, group in groups.items():
            remainder = group.sums if group.guess is None else group.sums + group.prior * group.guess
            for other, vectors in fitted.items():
                if other != name:
                    remainder = remainder - torch.mm(together[name, other], vectors)
            fitted[name] = remainder / (group.count + group.prior)[:, None]
    return fitted


def _together(one: _Group, other: _Group) -> Tensor:
    """Return how often rows of two groups occur together, a sparse matrix `(rows, rows)`."""
    both = (one.rows >= 0) & (other.rows >= 0)
    places = torch.stack([one.rows[both], other.rows[both]])
    shape = (len(one.sums), len(other.sums))
    ones = torch.ones(places.shape[1])
    return torch.sparse_coo_tensor(places, ones, shape, check_invariants=True).coalesce()


def cut_encoder(
    modules: list[Any], layers: Sequence[int], texts: Sequence[str] | None, **options: Any
) -> None:
    """Keep some layers of an encoder, in place; mean hidden states over texts become its embeddings.

    Args:
        modules: The encoder, a transformer first.
        layers: Indices of the layers to keep.
        texts: Texts to average over; `None` keeps the embeddings.
        **options: Further arguments of `HiddenMeans.of`.
    """
    means = None if texts is None else HiddenMeans.of(modules[0], layers[0], texts, **options)
    keep_layers(modules, layers)
    if means is not None:
        modules[0] = means.write(modules[0])


def sample(number: int, seed: int) -> list[int]:
    """Return the rows of at most `CONTEXT_TEXTS` texts, drawn with a seed from `number` texts, in order."""
    if number <= CONTEXT_TEXTS:
        return list(range(number))
    return sorted(random.Random(seed).sample(range(number), CONTEXT_TEXTS))


def frequent_pairs(transformer: Transformer, texts: Sequence[str], number: int, max_length: int) -> Tensor:
    """Return the most frequent pairs of adjacent tokens, `(pairs, 2)` int64, sorted by their ids.

    Pairs of two special tokens are left out; among equally frequent pairs, those of smaller ids are kept.

    Args:
        transformer: Has the tokenizer.
        texts: Texts with their prompts.
        number: Maximum number of pairs.
        max_length: Maximum number of tokens per text.

    Raises:
        MarError: No pair occurs `MIN_PAIR_COUNT` times.
    """
    tokenizer: Any = transformer.tokenizer
    special = torch.tensor(sorted(tokenizer.all_special_ids))
    parts = []
    for features in passes(transformer, texts, max_length):
        ids, mask = features["input_ids"].cpu(), features["attention_mask"].cpu().bool()
        inside = mask[:, :-1] & mask[:, 1:]
        framed = torch.isin(ids, special)
        inside &= ~(framed[:, :-1] & framed[:, 1:])
        parts.append(pair_keys(ids[:, :-1], ids[:, 1:])[inside])
    keys, count = torch.unique(torch.cat(parts), return_counts=True)
    keys, count = keys[count >= MIN_PAIR_COUNT], count[count >= MIN_PAIR_COUNT]
    if not len(keys):
        raise MarError(
            f"No two adjacent tokens occur {MIN_PAIR_COUNT} times in the {len(texts)} texts, so no pair gets "
            "vectors. Give more texts, or ask for no pairs."
        )
    chosen = keys[count.argsort(descending=True, stable=True)[:number]].sort().values
    return torch.stack([chosen >> 32, chosen & 0xFFFFFFFF], dim=1)


def _guess(own: Tensor, sums: Tensor, count: Tensor) -> Tensor:
    """Return a guess of each token's mean, `(vocabulary, width)`: a ridge regression on its own embedding.

    Args:
        own: The encoder's own embeddings, `(vocabulary, width)`.
        sums: Sums of the hidden states, `(vocabulary, width)`.
        count: Occurrences, `(vocabulary,)`.
    """
    seen = count > 0
    inputs = torch.cat([own, own.new_ones(len(own), 1)], dim=1)
    weight = count[seen].sqrt()[:, None]
    weighted = inputs[seen] * weight
    gram = weighted.T @ weighted
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device)
    coefficients: Tensor = torch.linalg.solve(gram, weighted.T @ (sums[seen] / weight.square() * weight))
    return inputs @ coefficients
