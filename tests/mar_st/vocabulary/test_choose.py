"""Tests of the choice of the pieces to keep: by use, by character, by script."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import WhitespaceSplit

from mar_st.errors import MarError
from mar_st.vocabulary import choose as choosing
from mar_st.vocabulary.choose import choose, coverage_of, usage_of
from mar_st.vocabulary.pieces import Pieces, mapped_rows

VOCABULARY = ["[UNK]", "药", "水", "吃", "吃药", "喝水", "火", "я", "火药", "吃火"]
TEXTS = ["吃药 吃药 喝水", "药", "吃药"]


def _backend(vocabulary=VOCABULARY):
    backend = Tokenizer(models.WordPiece({p: n for n, p in enumerate(vocabulary)}, unk_token="[UNK]"))
    backend.pre_tokenizer = WhitespaceSplit()
    return backend


def test_used_characters_are_kept_first_then_used_pieces_then_the_script():
    backend = _backend()
    pieces = Pieces(backend)
    usage = usage_of(backend, pieces, ["吃药 吃药 喝水"])

    def kept(keep):
        return {VOCABULARY[number] for number in choose(pieces, usage, keep)[0]}

    assert choose(pieces, usage, 4)[1] == 6
    assert kept(3) == {"[UNK]", "吃", "药"}  # characters that occur, most frequent first
    assert kept(5) == {"[UNK]", "吃", "药", "水", "吃药"}  # then pieces that are used
    assert kept(6) == {"[UNK]", "吃", "药", "水", "吃药", "喝水"}
    assert kept(7) == {*kept(6), "火"}  # then characters of the script
    assert kept(9) == kept(7)  # 火 and я occur nowhere, so what has them is left out


def test_characters_of_the_script_come_before_rare_pieces():
    vocab = ["[UNK]", "药", "吃", "吃药", "药吃", "吃吃", "火"]
    backend = _backend(vocab)
    pieces = Pieces(backend)
    usage = usage_of(backend, pieces, ["吃药"] * 1999 + ["药吃", "吃吃"])
    choice = choose(pieces, usage, 5)
    assert {vocab[number] for number in choice[0]} == {"[UNK]", "药", "吃", "吃药", "火"}
    assert choice[1] == 6
    assert "吃吃" in {vocab[number] for number in choose(pieces, usage, 6)[0]}


def test_pieces_and_characters_are_counted_as_the_texts_hold_them(monkeypatch):
    backend = _backend()
    usage = usage_of(backend, Pieces(backend), TEXTS)
    assert {VOCABULARY[n]: int(count) for n, count in enumerate(usage.counts) if count} == {
        "吃药": 3, "喝水": 1, "药": 1,
    }  # fmt: skip
    assert usage.characters == Counter("".join(TEXTS))
    monkeypatch.setattr(choosing, "BLOCK", 2)
    in_blocks = usage_of(backend, Pieces(backend), TEXTS)
    np.testing.assert_array_equal(in_blocks.counts, usage.counts)
    assert in_blocks.characters == usage.characters


def test_each_text_is_counted_alone_and_after_each_prompt():
    backend = _backend()
    usage = usage_of(backend, Pieces(backend), TEXTS, ["火 ", "", "火 "])
    assert usage.counts[VOCABULARY.index("火")] == 3
    assert usage.counts[VOCABULARY.index("吃药")] == 6
    assert usage.characters["吃"] == 3  # the characters of the prompt are not counted again
    assert usage.characters["火"] > 0


def test_required_pieces_stay_and_no_more_than_asked_for_are_kept():
    backend = _backend()
    pieces = Pieces(backend)
    usage, required = usage_of(backend, pieces, TEXTS), {VOCABULARY.index("я"), VOCABULARY.index("吃火")}
    for keep in range(3, 10):
        choice = choose(pieces, usage, keep, required)
        assert required | {0} <= choice[0]
        assert len(choice[0]) <= keep
        assert choice == choose(pieces, usage, keep, required)
    with pytest.raises(MarError, match="3 have to stay"):
        choose(pieces, usage, 2, required)


def test_a_piece_that_does_not_fit_with_its_parts_is_skipped():
    vocabulary = {piece: number for number, piece in enumerate(["a", "b", "c", "d", "ab", "abc"])}
    backend = Tokenizer(models.BPE(vocabulary, [("a", "b"), ("ab", "c")]))
    pieces = Pieces(backend)
    usage = usage_of(backend, pieces, ["abc", "abc", "abc", "d"])
    assert usage.counts[vocabulary["abc"]] == 3
    kept = {keep: {piece for piece in vocabulary if vocabulary[piece] in choose(pieces, usage, keep)[0]}
            for keep in (1, 3, 5)}  # fmt: skip
    assert kept == {1: {"a"}, 3: {"a", "b", "c"}, 5: {"a", "b", "c", "d", "ab"}}


def test_the_fit_is_the_share_of_tokens_and_texts_that_stay():
    backend = _backend()
    pieces = Pieces(backend)
    cut, order = pieces.cut(frozenset(VOCABULARY.index(piece) for piece in ("[UNK]", "药", "吃药")))
    assert coverage_of(backend, cut, mapped_rows(order, pieces.size), TEXTS) == (4 / 5, 2 / 3)
