"""Cost of requests: an estimate in advance, and a budget that is never exceeded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medteb_mteb.curation.llm.account import Account
    from medteb_mteb.curation.llm.config import LLM

__all__ = ["Budget", "tokens_of"]

#: Bytes of UTF-8 that count as a token. A Chinese character has three, so it counts as one token; today's
#: tokenizers need 0.6 to 1.0. Three English letters count as one; tokenizers put about four into one. The
#: estimate is rather too high than too low.
BYTES_PER_TOKEN = 3


def tokens_of(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / BYTES_PER_TOKEN)


class Budget:
    """Budget of an LLM: the amount spent, and the most that pending requests may cost.

    Args:
        llm: The LLM, with its budget and prices.
        account: Cost in the journal so far.
    """

    def __init__(self, llm: LLM, account: Account) -> None:
        self._llm = llm
        self.spent, self.tokens = account.cost, account.tokens_in + account.tokens_out
        self._held_cost, self._held_tokens = 0.0, 0

    def hold(self, tokens_in: int, tokens_out: int) -> bool:
        """Reserve the most that a request may cost; return `False` if that exceeds the rest of the budget."""
        cost, tokens = self._llm.cost(tokens_in, tokens_out), tokens_in + tokens_out
        budget, budget_tokens = self._llm.budget, self._llm.budget_tokens
        if budget is not None and self.spent + self._held_cost + cost > budget:
            return False
        if budget_tokens is not None and self.tokens + self._held_tokens + tokens > budget_tokens:
            return False
        self._held_cost += cost
        self._held_tokens += tokens
        return True

    def free(self, tokens_in: int, tokens_out: int) -> None:
        """Release an amount that `hold` reserved."""
        self._held_cost -= self._llm.cost(tokens_in, tokens_out)
        self._held_tokens -= tokens_in + tokens_out

    def pay(self, tokens_in: int, tokens_out: int) -> None:
        """Add the cost of an answer to the amount spent."""
        self.spent += self._llm.cost(tokens_in, tokens_out)
        self.tokens += tokens_in + tokens_out

    def exhausted(self) -> str:
        """Return why the next request did not fit, as text for the user."""
        if self._llm.budget is not None:
            limit = f"{self.spent:.4g} of its budget of {self._llm.budget:g} is spent"
            if self._llm.budget_tokens is None:
                return limit
            return f"{limit}, {self.tokens} of {self._llm.budget_tokens} tokens"
        return f"{self.tokens} of its {self._llm.budget_tokens} tokens are spent"
