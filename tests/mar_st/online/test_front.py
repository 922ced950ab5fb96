"""Rows of the embedding table, packs, pooling."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.online.front import BigramTable, EmbeddingTable, QueryTokenizer, TextPacker
from mar_st.online.listing import Listing
from mar_st.online.protocol import EncoderError
from tests.mar_st.conftest import make_tokenizer


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_table_returns_the_rows_of_its_file(tmp_path, dtype):
    rows = np.random.default_rng(0).standard_normal((50, 7)).astype(dtype)
    np.save(tmp_path / "table.npy", rows)
    ids = np.array([49, 0, 3, 3, 49, 7])
    embeddings = EmbeddingTable(tmp_path / "table.npy")[ids]
    assert embeddings.dtype == np.float32
    np.testing.assert_array_equal(embeddings, rows[ids].astype(np.float32))


def make_front(folder, mode="cls"):
    make_tokenizer("query").backend_tokenizer.save(str(folder / "tokenizer.json"))
    np.save(folder / "embeddings.npy", np.arange(64 * 4, dtype=np.float16).reshape(64, 4))
    listing = Listing(
        model={"source": "m", "identity": "0"},
        dim=4, normalised=True, similarity="cosine", max_length=100, prompts={}, pooling=mode,
        positions=2, filler=0, truncation="right", variants={}, chosen="", files={},
    )  # fmt: skip
    return TextPacker(folder, listing)


def test_packs_hold_all_texts_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("mar_st.online.front.PACK_TOKENS", 20)
    front = make_front(tmp_path)
    texts = ["头" * n for n in (3, 10, 5, 40, 1, 0)]
    packs = list(front.packs(texts))
    assert [pack.count for pack in packs] == [2, 1, 1, 2]
    lengths = []
    for pack in packs:
        inputs = pack.inputs
        size = len(inputs["segments"])
        assert size % 16 == 0
        assert inputs["embeddings"].shape == (size, 4)
        for text in range(pack.count):
            rows = np.flatnonzero(inputs["segments"] == text)
            np.testing.assert_array_equal(inputs["positions"][rows], np.arange(len(rows)) + 2)
            assert inputs["pool"][text] == rows[0]
            lengths.append(len(rows) - 2)
    assert lengths == [3, 10, 5, 40, 1, 0]


def test_pooling_weights_are_the_mean_of_each_text(tmp_path):
    front = make_front(tmp_path, "mean")
    (pack,) = front.packs(["吃药头", "吃药头头头"])  # with CLS and SEP
    weights = pack.inputs["pool"]
    assert weights.shape == (2, 16)
    np.testing.assert_allclose(weights[0], [0.2] * 5 + [0] * 11, rtol=1e-6)
    np.testing.assert_allclose(weights[1], [0] * 5 + [1 / 7] * 7 + [0] * 4, rtol=1e-6)
    assert weights.dtype == np.float32


@pytest.mark.parametrize("how", ["header", "cut", "one dimension", "integers", "columns first", "gone"])
def test_a_damaged_table_is_one_clear_error(tmp_path, how):
    path = tmp_path / "table.npy"
    rows = np.ones((50, 7), dtype=np.float16)
    np.save(path, {"one dimension": rows[0], "integers": rows.astype(np.int32),
                   "columns first": np.asfortranarray(rows)}.get(how, rows))  # fmt: skip
    content = bytearray(path.read_bytes())
    if how == "header":
        content[20:40] = b"(" * 20
    path.write_bytes(content[:-2] if how == "cut" else content)
    if how == "gone":
        path.unlink()
    with pytest.raises(EncoderError, match=r"table\.npy .* export the encoder again|Copy or export"):
        EmbeddingTable(path)


def test_a_damaged_tokenizer_is_one_clear_error(tmp_path):
    make_front(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": ', encoding="utf-8")
    with pytest.raises(EncoderError, match=r"tokenizer\.json cannot be read"):
        QueryTokenizer(tmp_path / "tokenizer.json", 100)


def test_tokens_without_a_row_are_refused(tmp_path):
    np.save(tmp_path / "table.npy", np.ones((5, 3), dtype=np.float16))
    table = EmbeddingTable(tmp_path / "table.npy")
    assert table[np.array([4, 0])].shape == (2, 3)
    for ids in ([5], [-1], [0, 10**12]):
        with pytest.raises(EncoderError, match="no row among 5"):
            table[np.array(ids)]


def write_pairs(folder, pairs, first, second):
    keys = np.array([(one << 32) | other for one, other in pairs], dtype=np.int64)
    for name, array in (("keys", keys), ("first", first), ("second", second)):
        np.save(folder / f"bigrams.{name}.npy", array)


def test_vectors_of_pairs_are_added_within_texts(tmp_path):
    pairs = [(3, 4), (4, 3), (4, 4)]
    first, second = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float16)
    write_pairs(tmp_path, pairs, first, second)
    ids = np.array([3, 4, 4, 3, 7, 3, 4, 4])
    segments = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    embeddings = np.ones((8, 5), dtype=np.float32)
    BigramTable(tmp_path, 5).add(embeddings, ids, segments)
    expected = np.ones((8, 5), dtype=np.float32)
    for place in range(7):
        pair = (ids[place], ids[place + 1])
        if pair in pairs and segments[place] == segments[place + 1]:
            expected[place] += first[pairs.index(pair)]
            expected[place + 1] += second[pairs.index(pair)]
    np.testing.assert_allclose(embeddings, expected, atol=1e-6)
    assert (embeddings[5] == 1).all()  # its neighbour is in another text


@pytest.mark.parametrize("how", ["order", "rows", "width", "dtype", "cut", "gone"])
def test_damaged_vectors_of_pairs_are_one_clear_error(tmp_path, how):
    rows = np.ones((3, 5), dtype=np.float16)
    pairs = [(3, 4), (4, 4), (4, 3)] if how == "order" else [(3, 4), (4, 3), (4, 4)]
    write_pairs(tmp_path, pairs, rows, rows[:2] if how == "rows" else rows)
    keys = tmp_path / "bigrams.keys.npy"
    if how == "dtype":
        np.save(keys, np.arange(3, dtype=np.int32))
    elif how == "cut":
        keys.write_bytes(keys.read_bytes()[:-3])
    elif how == "gone":
        keys.unlink()
    with pytest.raises(
        EncoderError, match=r"do not fit each other .* export the encoder again|cannot be read"
    ):
        BigramTable(tmp_path, 4 if how == "width" else 5)
