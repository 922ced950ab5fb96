"""Pieces of a tokenizer: texts whose pieces stay are split as before, others still are."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from mar_st.errors import MarError
from mar_st.vocabulary.choose import choose, coverage_of, usage_of
from mar_st.vocabulary.pieces import Pieces, mapped_rows

from .vocabulary_helpers import OURS, STRANGE, THEIRS, TOKENIZERS


@pytest.fixture(scope="module", params=TOKENIZERS)
def backend(request):
    return TOKENIZERS[request.param]().backend_tokenizer


def ids_of(backend, texts):
    return [encoding.ids for encoding in backend.encode_batch(texts)]


def cut_to(backend, texts, keep=None):
    """Cut to so many pieces, by default to those that leave the texts as they are."""
    pieces = Pieces(backend)
    usage = usage_of(backend, pieces, texts)
    choice = choose(pieces, usage, keep or choose(pieces, usage, len(pieces) - 1)[1])
    return (choice, *pieces.cut(choice[0]))


def test_a_text_whose_pieces_stay_is_split_as_before(backend):
    pieces = Pieces(backend)
    choice, cut, order = cut_to(backend, OURS)
    assert choice[1] == len(order) < len(pieces)
    new = mapped_rows(order, pieces.size)
    for before, after in zip(ids_of(backend, OURS), ids_of(cut, OURS), strict=True):
        assert new[before].tolist() == after


def test_any_selection_of_pieces_keeps_the_texts_that_use_them(backend):
    """Drop pieces at random, parts of others too: what stays is split as before."""
    pieces, rng = Pieces(backend), np.random.default_rng(0)
    texts = [text[start : start + 5] for text in OURS + THEIRS for start in range(0, len(text), 2)]
    before = ids_of(backend, texts)
    unknown = backend.token_to_id(getattr(backend.model, "unk_token", None) or "")
    whole = 0
    for share in (0.5, 0.8, 0.95):
        drawn = {int(n) for n in pieces.numbers if rng.random() < share} | pieces.required()
        kept = drawn.union(*(pieces.built_of(number) for number in drawn))
        cut, order = pieces.cut(kept)
        new = mapped_rows(order, pieces.size)
        for old, cut_ids in zip(before, ids_of(cut, texts), strict=True):
            if (new[old] >= 0).all() and unknown not in old:
                assert new[old].tolist() == cut_ids
                whole += 1
    assert whole > 30


def test_dropped_tokens_are_split_into_smaller_ones(backend):
    _, cut, order = cut_to(backend, OURS)
    for ids in ids_of(cut, THEIRS + STRANGE):
        assert all(0 <= number < len(order) for number in ids)
    if cut.token_to_id("<unk>") is not None and "</w>" not in cut.to_str():
        unknown = cut.token_to_id("<unk>")  # other words of the same characters
        assert all(unknown not in ids for ids in ids_of(cut, [text[::-1] for text in OURS]))


def test_special_tokens_and_bytes_stay(backend):
    pieces = Pieces(backend)
    least = len(pieces.required())
    choice = choose(pieces, usage_of(backend, pieces, OURS), least)
    assert set(pieces.added.values()) <= choice[0]
    cut, _ = pieces.cut(choice[0])
    assert set(pieces.added) <= set(cut.get_vocab())
    with pytest.raises(MarError, match=f"{least} have to stay"):
        choose(pieces, usage_of(backend, pieces, OURS), least - 1)
    with pytest.raises(MarError, match="give a number between"):
        choose(pieces, usage_of(backend, pieces, OURS), len(pieces))


def test_characters_without_a_piece_are_split_into_bytes():
    for name in ("byte_level", "byte_fallback"):
        backend = TOKENIZERS[name]().backend_tokenizer
        pieces = Pieces(backend)
        _, cut, _ = cut_to(backend, OURS, len(pieces.required()) + 20)
        if name == "byte_level":
            assert cut.decode(cut.encode("龘 새 ok").ids, skip_special_tokens=True) == "龘 새 ok"
        assert cut.token_to_id("<unk>") not in cut.encode("龘새").ids


def test_a_kept_piece_keeps_the_pieces_it_is_built_from():
    vocab = {piece: number for number, piece in enumerate(["a", "b", "c", "ab", "abc", "bc"])}
    backend = Tokenizer(models.BPE(vocab, [("a", "b"), ("ab", "c"), ("b", "c")]))
    pieces = Pieces(backend)
    assert pieces.built_of(vocab["abc"]) == {vocab["a"], vocab["b"], vocab["c"], vocab["ab"]}
    cut, order = pieces.cut({vocab["abc"]} | pieces.built_of(vocab["abc"]))
    assert [order[number] for number in cut.encode("abc").ids] == [vocab["abc"]]
    assert [order[number] for number in cut.encode("bc").ids] == [vocab["b"], vocab["c"]]


def test_the_piece_with_the_lowest_score_is_kept():
    """The penalty of unknown characters depends on it: without it `xyx` would be split differently."""
    vocab = [("<unk>", 0.0), ("x", -2.0), ("xyx", -14.5), ("z", -20.0)]
    backend = Tokenizer(models.Unigram(vocab, unk_id=0))
    pieces = Pieces(backend)
    assert backend.encode("xyx").ids == [2]
    assert pieces.required() == {0, 3}
    cut, order = pieces.cut({1, 2} | pieces.required())
    assert [order[number] for number in cut.encode("xyx").ids] == [2]


def test_the_share_of_unchanged_tokens_is_measured_and_checked(backend):
    pieces = Pieces(backend)
    _, cut, order = cut_to(backend, OURS)
    new = mapped_rows(order, pieces.size)
    assert coverage_of(backend, cut, new, OURS) == (1.0, 1.0)
    assert max(coverage_of(backend, cut, new, OURS + THEIRS)) < 1
    with pytest.raises(MarError, match=r"splits .* otherwise"):
        coverage_of(backend, cut, np.where(new >= 0, (new + 1) % len(order), new), OURS)


def test_a_tokenizer_of_another_kind_is_refused(monkeypatch):
    monkeypatch.setattr("mar_st.vocabulary.pieces.TOKENIZER_KINDS", ("Unigram",))
    with pytest.raises(MarError, match="of kind WordPiece"):
        Pieces(TOKENIZERS["word_piece"]().backend_tokenizer)
    backend = TOKENIZERS["unigram"]().backend_tokenizer
    with pytest.raises(MarError, match="no texts"):
        usage_of(backend, Pieces(backend), [])
