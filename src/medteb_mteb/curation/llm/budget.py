"""Cost of requests: an estimate in advance, and a budget for all requests of an LLM."""

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
    """Budget of an LLM: the amount spent, and what pending requests are expected to cost.

    The estimate of a prompt does not include reasoning, for which some models charge. So a request is
    expected to cost at least as much as the largest answer so far (in a resumed journal, an average one), and
    the second request is sent after the first answer. Only an answer that is larger than expected exceeds the
    budget.

    Args:
        llm: The LLM, with its budget and prices.
        account: Cost in the journal so far.
    """

    def __init__(self, llm: LLM, account: Account) -> None:
        self._llm = llm
        self.spent, self.tokens = account.cost, account.tokens_in + account.tokens_out
        self._held_cost, self._held_tokens, self._pending = 0.0, 0, 0
        self._answered = account.answers > 0
        #: Tokens of the largest answer; of an average one, if only earlier runs had answers.
        self._largest_answer = math.ceil(account.tokens_out / max(1, account.answers))

    def hold(self, tokens_in: int, tokens_out: int) -> tuple[int, int] | None:
        """Reserve the expected cost of a request.

        Args:
            tokens_in: Tokens of its prompt.
            tokens_out: Estimated tokens of its answer.

        Returns:
            The reserved tokens of the prompt and of the answer, for `free`; `None` if the rest of the budget
            does not cover them, or if the first answer of the LLM is awaited.
        """
        budget, budget_tokens = self._llm.budget, self._llm.budget_tokens
        if (budget is not None or budget_tokens is not None) and not self._answered and self._pending:
            return None
        tokens_out = max(tokens_out, self._largest_answer)
        cost, tokens = self._llm.cost(tokens_in, tokens_out), tokens_in + tokens_out
        if budget is not None and self.spent + self._held_cost + cost > budget:
            return None
        if budget_tokens is not None and self.tokens + self._held_tokens + tokens > budget_tokens:
            return None
        self._held_cost += cost
        self._held_tokens += tokens
        self._pending += 1
        return tokens_in, tokens_out

    def free(self, held: tuple[int, int]) -> None:
        """Release an amount that `hold` reserved."""
        self._held_cost -= self._llm.cost(*held)
        self._held_tokens -= sum(held)
        self._pending -= 1

    def pay(self, tokens_in: int, tokens_out: int) -> None:
        """Add the cost of an answer to the amount spent."""
        self.spent += self._llm.cost(tokens_in, tokens_out)
        self.tokens += tokens_in + tokens_out
        self._answered = True
        self._largest_answer = max(self._largest_answer, tokens_out)

    def exhausted(self) -> str:
        """Return why the next request did not fit, as text for the user."""
        if self._llm.budget is not None:
            limit = f"{self.spent:.4g} of its budget of {self._llm.budget:g} is spent"
            if self._llm.budget_tokens is None:
                return limit
            return f"{limit}, {self.tokens} of {self._llm.budget_tokens} tokens"
        return f"{self.tokens} of its {self._llm.budget_tokens} tokens are spent"
