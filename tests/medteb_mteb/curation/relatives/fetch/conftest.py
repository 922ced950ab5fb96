"""The four APIs, with a server on loopback between and without one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.medteb_mteb.curation.relatives.api_server import Apis, serving

from medteb_mteb.curation.relatives.fetch.web import address_of

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Ask:
    """Gives the contents of responses.

    Attributes:
        contents: What is answered before the APIs are asked, in order: bytes, or what becomes JSON.
        asked: Addresses of all requests.
    """

    contents: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    apis: Apis = field(default_factory=Apis)

    def __call__(self, path: str, params: dict, parse: Callable[[bytes], Any], suffix: str) -> Any:
        del suffix
        self.asked.append(address_of("", path, params))
        if not self.contents:
            return parse(self.apis.answer(self.asked[-1]).body)
        content = self.contents.pop(0)
        return parse(content if isinstance(content, bytes) else json.dumps(content).encode())


@pytest.fixture
def ask():
    return Ask()


@pytest.fixture
def apis():
    with serving(Apis()) as running:
        yield running
