from __future__ import annotations

import asyncio
from contextlib import ExitStack

import httpx
import pytest

from mar_st.index.searcher import Searcher
from mar_st.serve import ServeSettings, create_app
from tests.mar_st.serve.browser import chromium, open_page
from tests.mar_st.serve.fakes import FakeEncoder, Server, make_index


class Client:
    """Requests to an application without a socket."""

    def __init__(self, app):
        self.app = app

    async def many(self, *requests):
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.request(way, path, **how) for way, path, how in requests))

    def get(self, path, **how):
        return asyncio.run(self.many(("GET", path, how)))[0]

    def post(self, path, json=None, **how):
        return asyncio.run(self.many(("POST", path, {**how, **({} if json is None else {"json": json})})))[0]


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    """An index of texts encoded by the fake encoder."""
    return make_index(tmp_path_factory.mktemp("index"))


@pytest.fixture
def encoder():
    return FakeEncoder()


@pytest.fixture
def make_client(index, encoder):
    def make(given=encoder, reranker=None, **settings):
        searcher = Searcher.open(index, given)
        searcher.reranker = reranker
        app = create_app(searcher, ServeSettings(**{"name": "fake", **settings}))
        encoder.batches.clear()  # those of the warm-up
        return Client(app)

    return make


@pytest.fixture
def client(make_client):
    return make_client()


@pytest.fixture
def serve(index):
    """Starts servers in processes of their own."""
    running = []

    def start(where=index, **how):
        running.append(Server(where, **how))
        return running[-1]

    yield start
    for server in running:
        server.kill()


@pytest.fixture(scope="module")
def browser():
    """One Chromium for the pages of a file."""
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser):
    """Opens pages in Chromium; see `open_page` for what they must not do."""
    with ExitStack() as pages:
        yield lambda url, **how: pages.enter_context(open_page(browser, url, **how))
