"""A real HTTP server on loopback that answers what a function makes of the messages.

In a test (the folder's `conftest.py` makes it importable)::

    from llm_server import llm_at, serving

    def write(messages: list[dict]) -> str:
        return json.dumps({"rewrites": [messages[-1]["content"]]})

    with serving(write) as url:
        ask([Job(llm_at(url), prompts, ...)], ...)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fault_server import FaultEndpoint, rules

from medteb_mteb.curation.llm.settings import LLM

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["llm_at", "running", "serving"]


#: Serves an endpoint whose account the test looks at: `made`, `sold`, `spoiled`, `bodies`, ...
running = rules.serving


def serving(answer: Callable[[list[dict[str, str]]], str]) -> AbstractContextManager[str]:
    """Serve a function of the messages while the context lasts; gives the base URL."""
    return running(FaultEndpoint(answer=answer))


def llm_at(url: str, **settings: Any) -> LLM:
    """An LLM at an address."""
    common = {"name": "writer", "model": "writer", "base_url": url, "temperature": 0.7}
    common |= {"retries": 30, "backoff": 0.01, "concurrency": 8, "timeout": 20}
    return LLM.model_validate(common | settings)
