"""Length limits of texts: what fits is passed on, and what does not is refused or cut."""

from __future__ import annotations

import asyncio

import pytest

from mar_st.serve.api.lengths import check_characters, check_lengths, counted_part
from mar_st.serve.engine.search_engine import Encoding
from mar_st.serve.errors import ApiError
from mar_st.serve.metrics import Metrics
from mar_st.serve.settings import ServeSettings
from tests.mar_st.serve.fakes import FakeEncoder


class Words(FakeEncoder):
    """A token for each word, and two special ones."""

    def count_tokens(self, texts, prompt_name=None):
        return [2 + len(text.split()) for text in texts]


@pytest.fixture
def check():
    """Checks texts for an encoder, by default one that takes 62 characters."""
    opened = []

    def call(texts, most=10_000, *, truncate=False, encoder=None):
        opened.append(Encoding(encoder or FakeEncoder(), ServeSettings(), Metrics()))
        return asyncio.run(check_lengths(opened[-1], texts, most, truncate=truncate, field="input"))

    yield call
    for encoding in opened:
        encoding.batcher.close()


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("texts", [["x"], ["x" * 62, "y"], ["头" * 62], ["😀" * 62], ["e\u0301" * 31]])
def test_texts_that_fit_are_passed_on_unchanged(check, texts, truncate):
    checked = check(texts, truncate=truncate)
    assert (checked.texts, checked.cut) == (texts, False)
    assert checked.counts in (None, FakeEncoder().count_tokens(texts))


@pytest.mark.parametrize("text", ["x" * 63, "头" * 63, "x" * 1024, "x" * 1025, "x" * 10**6])
def test_a_text_that_is_too_long_is_refused_unless_it_may_be_cut(check, text):
    with pytest.raises(ApiError, match="Shorten it, or send") as error:
        check(["short", text])
    assert (error.value.status, error.value.code, error.value.param) == (400, "text_too_long", "input")
    checked = check(["short", text], truncate=True)
    assert checked.cut
    assert checked.texts[0] == "short"
    assert text.startswith(checked.texts[1])
    assert 62 < len(checked.texts[1]) <= 1024  # the encoder cuts the rest


def test_an_encoder_that_keeps_the_end_gets_the_end(check):
    encoder = FakeEncoder()
    encoder.truncation = "left"
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))
    (part,) = check([text], truncate=True, encoder=encoder).texts
    assert text.endswith(part)
    assert part != text


@pytest.mark.parametrize(
    ("texts", "most"), [(["x" * 62] * 10, 640), (["x" * 500] * 10, 640), (["头", "疼"], 6), (["x"], 3)]
)
def test_all_texts_together_may_have_a_number_of_tokens_after_they_are_cut(check, texts, most):
    assert len(check(texts, most, truncate=True).texts) == len(texts)
    with pytest.raises(ApiError, match=f"at most {most - 1} tokens in all; it has {most}") as error:
        check(texts, most - 1, truncate=True)
    assert error.value.code == "too_many_tokens"


def test_many_long_texts_are_refused_before_their_tokens_are_counted(check):
    class Counting(FakeEncoder):
        counted = 0

        def count_tokens(self, texts, prompt_name=None):
            self.counted += sum(map(len, texts))
            return super().count_tokens(texts)

    encoder = Counting()
    with pytest.raises(ApiError, match="far longer than 640 tokens"):
        check(["x" * 10**5] * 100, 640, truncate=True, encoder=encoder)
    assert encoder.counted == 0


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("text", ["", " ", "word", "word " * 3, " ".join(f"word{n}" for n in range(200))])
def test_a_long_text_is_cut_to_the_longest_part_that_fits(text, side):
    encoder = Words()
    encoder.truncation = side
    part = asyncio.run(counted_part(encoder, text))
    words = text.split()
    assert part.split() == (words[-62:] if side == "left" else words[:62])
    longer = text[-len(part) - 1 :] if side == "left" else text[: len(part) + 1]
    assert longer == part or encoder.count_tokens([longer])[0] > encoder.max_length


@pytest.mark.parametrize(("length", "cut"), [(1, False), (8192, False), (8193, True), (10**6, True)])
def test_a_text_that_is_not_encoded_is_limited_by_its_characters(length, cut):
    text = "头" * length
    assert check_characters(text, truncate=True, field="query") == (text[:8192], cut)
    if cut:
        with pytest.raises(ApiError, match="'query' may have at most 8192 characters"):
            check_characters(text, truncate=False, field="query")
    else:
        assert check_characters(text, truncate=False, field="query") == (text, False)
