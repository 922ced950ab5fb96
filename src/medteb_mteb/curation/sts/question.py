"""Rules for questions: they ask something, they have content besides their term, and a limited length."""

from __future__ import annotations

import math
import re

from mar_st.text.normalisation import normalise

__all__ = ["MIN_LETTERS", "bounds", "is_question", "says_little"]

#: Marks of a question without a question mark. Words that also occur in statements are left out where the
#: statement is the likelier reading: 没什么, 不怎么.
_ASKING = re.compile(
    r"[吗呢]|(?<![没无])什么|(?<![没不])怎么|怎样|如何|为何|哪|谁|几[天次个周月年岁点号]|多[少久大长高远快]|"
    r"是否|能否|可否|有无|有没有|(.)[不没]\1|(?<!不)要不要|什么时候|何时|啥|咋"
)
#: Letters that a question has besides its term.
MIN_LETTERS = 2


def is_question(text: str) -> bool:
    """Return True if a Chinese text is one line that asks something."""
    if "\n" in text or "\r" in text:
        return False
    return text.rstrip('"”』」）) ')[-1:] in ("?", "？") or _ASKING.search(text) is not None


def says_little(text: str, term: str) -> bool:
    """Return True if a text says next to nothing besides the term."""
    return len(normalise(text)) - len(normalise(term)) < MIN_LETTERS


def bounds(query: str, tolerance: float) -> tuple[int, int]:
    """Return the fewest and most characters that `positive` may have."""
    length = len(query.strip())
    # The small constant compensates for rounding errors such as 0.3 x 10 = 2.9999...
    allowed = math.floor(tolerance * length + 1e-9)
    return max(1, length - allowed), length + allowed
