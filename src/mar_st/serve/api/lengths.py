"""Length limits and truncation of the texts of a request, before any other work on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mar_st.online.protocol import truncation_side
from mar_st.serve.engine.aside import aside
from mar_st.serve.errors import bad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.online import QueryEncoder
    from mar_st.serve.engine.search_engine import Encoding

#: Maximum characters per token. Longer texts are cut or refused before their tokens are counted.
CHARACTERS_PER_TOKEN = 16

#: Maximum tokens of a text if there is no encoder.
TOKENS_WITHOUT_ENCODER = 512


@dataclass(frozen=True)
class CheckedTexts:
    """The texts of a request within the limits.

    Attributes:
        texts: Texts for the encoder, which cuts them to its maximum length.
        counts: Number of tokens of each, if they had to be counted.
        cut: Whether a text is longer than the encoder's limit.
    """

    texts: list[str]
    counts: list[int] | None
    cut: bool


async def check_lengths(
    encoding: Encoding, texts: Sequence[str], most: int, *, truncate: bool, field: str
) -> CheckedTexts:
    """Refuse texts that are too long, or cut them.

    A text that may be cut is cut to `CHARACTERS_PER_TOKEN` characters for each token that the encoder takes,
    so that no tokenizer processes text beyond the limit.

    Raises:
        ApiError: 400: a text is longer than the model's limit and may not be cut, or all texts together have
            more than `most` tokens.
    """
    if encoding.surely_fits(texts, most):
        return CheckedTexts(list(texts), None, False)
    limit = encoding.encoder.max_length
    parts = [_part(text, CHARACTERS_PER_TOKEN * limit, encoding.encoder) for text in texts]
    cut = any(len(part) < len(text) for part, text in zip(parts, texts, strict=True))
    if cut and not truncate:
        raise bad(
            f"{field!r} has a text that is far longer than the {limit} tokens of the model. {_SHORTEN}",
            field,
            code="text_too_long",
        )
    if sum(map(len, parts)) > CHARACTERS_PER_TOKEN * most:
        raise bad(f"{field!r} is far longer than {most} tokens.", field, code="too_many_tokens")
    counts = await encoding.count(parts)
    total = sum(min(count, limit) for count in counts)
    if total > most:
        raise bad(
            f"{field!r} may have at most {most} tokens in all; it has {total}.",
            field,
            code="too_many_tokens",
        )
    longest = max(counts)
    if longest > limit and not truncate:
        raise bad(
            f"{field!r} has a text of {longest} tokens; the model takes {limit}. {_SHORTEN}",
            field,
            code="text_too_long",
        )
    return CheckedTexts(parts, counts, cut or longest > limit)


async def counted_part(encoder: QueryEncoder, text: str) -> str:
    """Return the longest part of a text that fits the maximum length of the encoder.

    It is the start or the end of the text, whichever the encoder keeps. BM25, snippets and rerankers use this
    part; the encoder itself may also see a part of the next word.
    """

    def find() -> str:
        fits, beyond = 1, len(text) + 1
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            if encoder.count_tokens([_part(text, middle, encoder)])[0] <= encoder.max_length:
                fits = middle
            else:
                beyond = middle
        return _part(text, fits, encoder)

    return await aside(find)


def check_characters(text: str, *, truncate: bool, field: str) -> tuple[str, bool]:
    """Refuse or cut a text that is not encoded.

    Returns:
        The text, and whether it was cut.

    Raises:
        ApiError: 400: it is too long and may not be cut.
    """
    most = CHARACTERS_PER_TOKEN * TOKENS_WITHOUT_ENCODER
    if len(text) > most and not truncate:
        raise bad(f"{field!r} may have at most {most} characters. {_SHORTEN}", field, code="text_too_long")
    return text[:most], len(text) > most


_SHORTEN = 'Shorten it, or send "truncate": true.'


def _part(text: str, size: int, encoder: QueryEncoder) -> str:
    """Return the part of a text, within the limit of characters, that an encoder keeps."""
    if len(text) <= size:
        return text
    return text[-size:] if truncation_side(encoder) == "left" else text[:size]
