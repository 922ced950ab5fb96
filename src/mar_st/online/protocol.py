"""Interface of query encoders, which turn texts into vectors of the document space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np


class EncoderError(MarError):
    """A query encoder that cannot be loaded, or an unsupported request; the message says what to do."""


class QueryEncoder(Protocol):
    """The query side of a model, in any runtime; safe to call from several threads.

    Attributes:
        dim: Width of the vectors.
        identity: Digest of everything that computes the vectors; equal identities give equal vectors.
        space: Digest of the document space that the vectors belong to; `None` if unknown.
        normalised: Whether the vectors have length 1.
        max_length: Maximum tokens of a text, including prompt and special tokens; longer texts are cut.
        prompts: Stored prompts by name.

    Encoders of this package also have `query` and `origin`, see `encoder_name` and `encoder_origin`, and
    `truncation`, the side on which texts are cut.
    """

    @property
    def dim(self) -> int: ...  # noqa: D102 -- see the class
    @property
    def identity(self) -> str: ...  # noqa: D102
    @property
    def space(self) -> str | None: ...  # noqa: D102
    @property
    def normalised(self) -> bool: ...  # noqa: D102
    @property
    def max_length(self) -> int: ...  # noqa: D102
    @property
    def prompts(self) -> Mapping[str, str | None]: ...  # noqa: D102

    def encode(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Return the vectors of queries.

        Args:
            texts: The queries; may be empty.
            prompt_name: Name of the stored prompt to put before each text; default `query`, if it exists.

        Returns:
            float32 array `(len(texts), dim)`, C-contiguous.

        Raises:
            EncoderError: The prompt does not exist.
        """

    def count_tokens(self, texts: Sequence[str], prompt_name: str | None = None) -> list[int]:
        """Return the tokens of each text with its prompt and special tokens, before anything is cut."""


def encoder_name(encoder: object) -> str | None:
    """Return the name of a query encoder in its model (`query`, `query-lookup`); `None` if it has none."""
    return getattr(encoder, "query", None)


def encoder_origin(encoder: object) -> str | None:
    """Return the digest of the modules that a query encoder was made of.

    All forms of an encoder (saved, exported, in 8 bits) share one origin, but each has its own `identity`.
    Returns `None` if neither is known.
    """
    return getattr(encoder, "origin", None) or getattr(encoder, "identity", None)


def find_prompt(prompts: Mapping[str, str | None], name: str | None) -> str:
    """Return the stored prompt of a name; for `None` that of queries, or an empty text.

    Raises:
        EncoderError: The prompt does not exist.
    """
    if name is None:
        return prompts.get("query") or ""
    if name not in prompts:
        raise EncoderError(f"There is no prompt {name!r}; the model has {', '.join(prompts) or 'none'}.")
    return prompts[name] or ""
