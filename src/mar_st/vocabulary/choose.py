"""Choice of the tokens of a vocabulary to keep: those that texts use, most frequent first, then likely ones.

The rule, with room for `keep` pieces:

1. Pieces that the tokenizer needs: special and added tokens, symbols of bytes, see `Pieces.required`.
2. Pieces of a single character that occurs in the texts, most frequent first: dropped pieces can be spelled.
3. Pieces that the texts use, most frequent first, each with the pieces that build it.
4. Pieces of a single character of the scripts of the texts (`SCRIPT_SHARE` of their letters at least) and of
   ASCII, so that other texts have few unknown characters.
5. Other pieces whose characters all occur in the texts, in the order of the vocabulary.

If not all of 2 and 3 fit, the rare pieces of 3 (those beyond `COMMON_SHARE` of the tokens) come after 4.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokenizers import Tokenizer

    from mar_st.vocabulary.pieces import Pieces

#: Minimum share of the letters for a script to belong to the texts.
SCRIPT_SHARE = 0.01

#: Pieces that make up this share of the tokens come before characters that the texts do not have.
COMMON_SHARE = 0.999

#: Texts that are tokenised at a time.
BLOCK = 1024


@dataclass(frozen=True)
class Usage:
    """Usage of a vocabulary by texts.

    Attributes:
        counts: How often each piece occurs, by its number; `(size,)` int64.
        characters: How often each character occurs, after the tokenizer's normalisation.
    """

    counts: np.ndarray
    characters: Counter[str]


def encoded(
    backend: Tokenizer, texts: Sequence[str], prompts: Sequence[str], what: str
) -> Iterator[tuple[str, list[str], list[list[int]]]]:
    """Yield blocks of texts with their pieces, without special tokens: bare, then behind each prompt."""
    starts = ["", *dict.fromkeys(prompt for prompt in prompts if prompt)]
    stream = iter(texts)
    with tqdm(total=len(texts), desc=what, unit="texts", delay=10, disable=None) as bar:
        while block := list(itertools.islice(stream, BLOCK)):
            for start in starts:
                read = [start + text for text in block]
                encodings = backend.encode_batch_fast(read, add_special_tokens=False)
                yield start, read, [encoding.ids for encoding in encodings]
            bar.update(len(block))


def usage_of(backend: Tokenizer, pieces: Pieces, texts: Sequence[str], prompts: Sequence[str] = ()) -> Usage:
    """Count the pieces and characters of texts; they are read block by block.

    Args:
        backend: The tokenizer.
        pieces: Pieces of the tokenizer.
        texts: The texts.
        prompts: Possible prefixes of a text; each text is counted alone and after each of them.

    Raises:
        MarError: There are no texts.
    """
    counts = np.zeros(pieces.size, dtype=np.int64)
    characters: Counter[str] = Counter()
    normalizer = backend.normalizer
    for start, read, ids in encoded(backend, texts, prompts, "counting pieces"):
        flat = np.fromiter(itertools.chain.from_iterable(ids), dtype=np.int64)
        counts += np.bincount(flat, minlength=pieces.size)
        for text in read if not start else [start]:
            characters.update(normalizer.normalize_str(text) if normalizer is not None else text)
    if not counts.any():
        raise MarError("There are no texts to choose the vocabulary by; give files that hold some.")
    return Usage(counts, characters)


def choose(
    pieces: Pieces, usage: Usage, keep: int, required: Iterable[int] = ()
) -> tuple[frozenset[int], int]:
    """Choose the pieces to keep by the rule of this module; equal input gives equal pieces.

    Args:
        pieces: All pieces.
        usage: How the texts use them.
        keep: Maximum number to keep.
        required: Pieces to keep in addition to `Pieces.required`.

    Returns:
        Numbers of the kept pieces, and the number of pieces to keep so that no text changes.

    Raises:
        MarError: `keep` is too small for the required pieces, or leaves nothing to cut.
    """
    kept = pieces.required() | set(required)
    if not len(kept) <= keep < len(pieces):
        raise MarError(
            f"keep is {keep}, but the vocabulary has {len(pieces)} pieces, of which {len(kept)} have to stay "
            "(special tokens, bytes); give a number between them."
        )
    counts, numbers = usage.counts, pieces.numbers
    singles = {number: character for number in numbers if (character := pieces.single(number)) is not None}
    seen = [number for number, character in singles.items() if character in usage.characters]
    seen.sort(key=lambda number: (-usage.characters[singles[number]], number))
    used = sorted((n for n in numbers if counts[n]), key=lambda n: (-counts[n], n))
    enough = len(_filled(pieces, len(pieces), kept, [*seen, *used]))
    scripts = _scripts(usage.characters)
    likely = [n for n, character in singles.items() if character.isascii() or script_of(character) in scripts]
    surfaces = {number: surface for number in numbers if (surface := pieces.surface(number)) is not None}
    fill = [number for number, surface in surfaces.items() if usage.characters.keys() >= set(surface)]
    common = used if enough <= keep else used[: _common(counts[used])]
    return frozenset(_filled(pieces, keep, kept, [*seen, *common, *likely, *used, *fill])), enough


def coverage_of(
    backend: Tokenizer,
    cut: Tokenizer,
    new: np.ndarray,
    texts: Sequence[str],
    prompts: Sequence[str] = (),
) -> tuple[float, float]:
    """Return the shares of the texts' tokens, and of the texts with all pieces, that a cut tokenizer keeps.

    Also check that texts whose pieces stay are split as before.

    Args:
        backend: The tokenizer before the cut.
        cut: The tokenizer after the cut.
        new: New number of each old piece; -1 for removed pieces.
        texts: The texts.
        prompts: Possible prefixes of a text.

    Raises:
        MarError: A text whose pieces are all kept is tokenised differently.
    """
    tokens = kept_tokens = number = unchanged = 0
    unknown = backend.token_to_id(getattr(backend.model, "unk_token", None) or "")
    for _, read, before in encoded(backend, texts, prompts, "comparing"):
        after = cut.encode_batch_fast(read, add_special_tokens=False)
        for text, old, cut_encoding in zip(read, before, after, strict=True):
            wanted = new[np.asarray(old, dtype=np.int64)]
            number, tokens = number + 1, tokens + len(old)
            there = wanted >= 0
            kept_tokens += int(there.sum())
            if wanted.tolist() == cut_encoding.ids:
                unchanged += 1
            elif there.all() and unknown not in old:
                raise MarError(
                    f"The cut tokenizer splits {text[:60]!r} otherwise although all its pieces stay; a "
                    "tokenizer of this form cannot be cut."
                )
    return kept_tokens / max(tokens, 1), unchanged / max(number, 1)


def _filled(pieces: Pieces, size: int, kept: Iterable[int], numbers: Iterable[int]) -> set[int]:
    """Return kept pieces and others in this order, while there is room for each with those that build it."""
    chosen = set(kept)
    for number in numbers:
        if len(chosen) >= size:
            break
        if number not in chosen:
            missing = {number, *pieces.built_of(number)} - chosen
            if len(chosen) + len(missing) <= size:
                chosen |= missing
    return chosen


def _common(counts: np.ndarray) -> int:
    """Return how many of the most frequent tokens cover `COMMON_SHARE` of all occurrences; counts descend."""
    total = np.cumsum(counts)
    return 0 if not len(total) else int(np.searchsorted(total, COMMON_SHARE * total[-1])) + 1


def _scripts(characters: Counter[str]) -> set[str]:
    """Return the scripts of the texts' letters, without rare ones."""
    by_script: Counter[str] = Counter()
    for character, count in characters.items():
        script = script_of(character)
        if script is not None:
            by_script[script] += count
    total = sum(by_script.values())
    return {script for script, count in by_script.items() if count >= SCRIPT_SHARE * total}


@lru_cache(maxsize=2**17)
def script_of(character: str) -> str | None:
    """Return the first word of a letter's Unicode name (`CJK`, `LATIN`, `HIRAGANA`); else `None`."""
    if not unicodedata.category(character).startswith("L"):
        return None
    return unicodedata.name(character, "").partition(" ")[0] or None
