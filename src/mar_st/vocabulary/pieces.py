"""The pieces of a tokenizer, and the same tokenizer with fewer of them.

A text whose pieces all stay is split as before:

- Unigram chooses the best path through the pieces found in a text. Fewer pieces leave fewer paths, and the
  best one is among them. The score of an unknown character follows the lowest score of all pieces, so the
  piece that has it stays.
- BPE applies its merges in their order. A piece stays together with the pieces from which its merges build
  it, so every merge that a text needs is there, and among those that are left it is the first one as before.
- WordPiece takes the longest piece at each place. The longest of all is the longest of those that stay. A
  word that was unknown as a whole is the exception: without the piece that led to a dead end it may be split.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

TOKENIZER_KINDS = ("Unigram", "BPE", "WordPiece")

#: How sentencepiece writes a space.
SPACE = "▁"


class Pieces:
    """The pieces of a fast tokenizer.

    Args:
        backend: The tokenizer.
        name: Source of the tokenizer, for messages.

    Attributes:
        kind: Unigram, BPE or WordPiece.
        model: Number of every piece of the model, by its string.
        added: Number of every added token, by its string; special tokens are among them.

    Raises:
        MarError: The tokenizer is of another kind.
    """

    def __init__(self, backend: Tokenizer, name: str = "the tokenizer") -> None:
        self._content: dict[str, Any] = json.loads(backend.to_str())
        self._content["truncation"] = self._content["padding"] = None  # left by the last call
        self._model: dict[str, Any] = self._content["model"]
        self.kind = str(self._model["type"])
        self._prefix = str(self._model.get("continuing_subword_prefix") or "")
        marked = self.kind == "BPE" and (self._prefix or self._model.get("end_of_word_suffix"))
        if self.kind not in TOKENIZER_KINDS or marked:
            raise MarError(
                f"{name} is of kind {self.kind}{', with marks inside words' if marked else ''}; "
                f"{', '.join(TOKENIZER_KINDS)} can be cut, BPE without such marks."
            )
        vocab = self._model["vocab"]
        self.model: dict[str, int] = (
            {piece: index for index, (piece, _) in enumerate(vocab)} if self.kind == "Unigram" else vocab
        )
        self.added: dict[str, int] = {
            token["content"]: token["id"] for token in self._content["added_tokens"]
        }
        self._special = frozenset(self.added.values())
        self._names = {number: token for token, number in self.added.items()}
        self._names |= {number: piece for piece, number in self.model.items()}
        self._byte_level = any(
            '"ByteLevel"' in json.dumps(self._content[part])
            for part in ("normalizer", "pre_tokenizer", "decoder")
        )
        self._bytes = _byte_symbols()
        self._ranks = {
            (first, second): rank for rank, (first, second) in enumerate(self._model.get("merges") or [])
        }

    def __len__(self) -> int:
        return len(self._names)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of all pieces, ascending."""
        return sorted(self._names)

    @property
    def size(self) -> int:
        """Return the highest number plus one."""
        return max(self._names) + 1

    def required(self) -> set[int]:
        """Return the pieces that must stay for the tokenizer to work as before.

        Added and special tokens, the unknown token, those that the post-processor adds, the symbols of all
        bytes, and of Unigram the piece of the lowest score.
        """
        pieces = set(self.added.values())
        unknown = self._model.get("unk_token")
        if unknown is not None and unknown in self.model:
            pieces.add(self.model[unknown])
        if self._model.get("unk_id") is not None:
            pieces.add(int(self._model["unk_id"]))
        for part in _processors(self._content["post_processor"]):
            pieces.update(_processor_ids(part))
        if self._byte_level:
            pieces.update(self.model[symbol] for symbol in self._bytes if symbol in self.model)
        bytes_of = (f"<0x{byte:02X}>" for byte in range(256))
        pieces.update(self.model[symbol] for symbol in bytes_of if symbol in self.model)
        if self.kind == "Unigram":
            scores = np.array([score for _, score in self._model["vocab"]])
            pieces.add(int(scores.argmin()))
        return pieces

    def built_of(self, number: int) -> set[int]:
        """Return the pieces from which the merges of a BPE tokenizer build a piece; none of other kinds.

        The merges inside a piece are the same in every text, as none of them reaches beyond it.
        """
        piece = self._names[number]
        if self.kind != "BPE" or number in self._special or len(piece) < 2:
            return set()
        parts = list(piece)
        built = set(parts)
        while len(parts) > 1:
            rank, place = min(
                (self._ranks.get(pair, math.inf), place)
                for place, pair in enumerate(itertools.pairwise(parts))
            )
            if rank == math.inf:
                return set()  # no merges lead to it; some tokenizers look up whole words
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            built.add(parts[place])
        return {self.model[part] for part in built if part in self.model} - {number}

    def surface(self, number: int) -> str | None:
        """Return the characters of a piece without marks of words and spaces.

        `None` for added tokens and single bytes, and for bytes that are not whole characters.
        """
        piece = self._names[number]
        if number in self._special or (piece.startswith("<0x") and piece.endswith(">")):
            return None
        if self._byte_level:
            try:
                return bytes(self._bytes[symbol] for symbol in piece).decode().replace(" ", "")
            except (KeyError, UnicodeDecodeError):
                return None
        return piece.removeprefix(self._prefix).replace(SPACE, "")

    def single(self, number: int) -> str | None:
        """Return the character of a piece that is nothing but this character; else `None`."""
        surface = self.surface(number)
        if surface is None or len(surface) != 1:
            return None
        marked = SPACE in self._names[number] or (self._byte_level and self._names[number].startswith("Ġ"))
        return None if marked else surface

    def cut(self, kept: Collection[int]) -> tuple[Tokenizer, list[int]]:
        """Return the tokenizer with some of its pieces, numbered from 0 in their old order.

        Args:
            kept: Numbers of the pieces that stay; `required()` must be among them.

        Returns:
            The tokenizer, and the old number of each new piece.
        """
        pieces = [(piece, number) for piece, number in self.model.items() if number in kept]
        pieces.sort(key=lambda entry: entry[1])
        order = [number for _, number in pieces]
        order += sorted(self._special - set(self.model.values()))  # they are numbered behind a model
        new_ids = {number: index for index, number in enumerate(order)}
        content = copy.deepcopy({key: part for key, part in self._content.items() if key != "model"})
        content["model"] = {key: part for key, part in self._model.items() if key not in ("vocab", "merges")}
        model = content["model"]
        if self.kind == "Unigram":
            model["vocab"] = [self._model["vocab"][number] for _, number in pieces]
            if model.get("unk_id") is not None:
                model["unk_id"] = new_ids[int(model["unk_id"])]
        else:
            model["vocab"] = {piece: new_ids[number] for piece, number in pieces}
        if self.kind == "BPE":
            vocabulary = model["vocab"]
            model["merges"] = [
                [first, second]
                for first, second in self._model["merges"]
                if first in vocabulary and second in vocabulary and first + second in vocabulary
            ]
        for token in content["added_tokens"]:
            token["id"] = new_ids[token["id"]]
        for part in _processors(content["post_processor"]):
            _renumber(part, new_ids)
        return Tokenizer.from_str(json.dumps(content, ensure_ascii=False)), order


def mapped_rows(order: Sequence[int], size: int) -> np.ndarray:
    """Return the new number of every old one, -1 for removed ones; `(size,)` int64."""
    new = np.full(size, -1, dtype=np.int64)
    new[np.asarray(order)] = np.arange(len(order))
    return new


def _processors(part: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    """Yield the post-processors inside a post-processor."""
    if part is None:
        return
    yield part
    for inner in part.get("processors", []):
        yield from _processors(inner)


def _processor_ids(part: dict[str, Any]) -> Iterable[int]:
    for token in (part.get("special_tokens") or {}).values():
        yield from token["ids"]
    for name in ("sep", "cls"):  # of BERT and RoBERTa: a token and its number
        if isinstance(part.get(name), list):
            yield part[name][1]


def _renumber(part: dict[str, Any], new: dict[int, int]) -> None:
    for token in (part.get("special_tokens") or {}).values():
        token["ids"] = [new[number] for number in token["ids"]]
    for name in ("sep", "cls"):
        if isinstance(part.get(name), list):
            part[name] = [part[name][0], new[part[name][1]]]


def _byte_symbols() -> dict[str, int]:
    """Return the characters that represent bytes in byte-level tokenizers (GPT-2), with their bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
