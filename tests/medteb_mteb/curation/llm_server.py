"""A real HTTP server on loopback that answers what a function makes of the messages.

In a test (the folder's `conftest.py` makes it importable)::

    from llm_server import llm_at, serving

    def write(messages: list[dict]) -> str:
        return json.dumps({"rewrites": [messages[-1]["content"]]})

    with serving(write, faults=0.1) as url:
        ask([Job(llm_at(url), prompts, ...)], ...)
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fault_server import FaultEndpoint, rules

from medteb_mteb.curation.llm.settings import LLM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["llm_at", "running", "serving"]


@contextmanager
def serving(answer: Callable[[list[dict[str, str]]], str], faults: float = 0) -> Iterator[str]:
    """Serve a function while the context lasts; gives the base URL.

    Args:
        answer: Messages to the text of the answer.
        faults: Probability of each fault, see `fault_server`.
    """
    with running(FaultEndpoint(answer=answer, rate=faults, hang=0.2)) as url:
        yield url


@contextmanager
def running(endpoint: FaultEndpoint) -> Iterator[str]:
    """Serve an endpoint whose account the test looks at: `made`, `sold`, `spoiled`, `bodies`, ..."""
    with rules.serving(endpoint) as url:
        yield url


def llm_at(url: str, **settings: Any) -> LLM:
    """An LLM at an address."""
    common = {
        "name": "writer",
        "model": "writer",
        "base_url": url,
        "temperature": 0.7,
        "retries": 30,
        "backoff": 0.01,
    }
    return LLM.model_validate({**common, "concurrency": 8, "timeout": 20, **settings})
