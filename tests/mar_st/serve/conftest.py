from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mar_st.serve import ServeSettings, create_app
from tests.mar_st.serve.browser import chromium, open_page
from tests.mar_st.serve.fakes import DOCUMENTS, FakeEncoder, FakeSearcher
from tests.mar_st.serve.servers import Server, make_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Client:
    """Requests to an application without a socket."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def many(self, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.request(way, path, **how) for way, path, how in requests))

    def __call__(self, way: str, path: str, **how: Any) -> httpx.Response:
        return asyncio.run(self.many((way, path, how)))[0]

    def get(self, path: str, **how: Any) -> httpx.Response:
        return self("GET", path, **how)

    def post(self, path: str, json: Any = None, **how: Any) -> httpx.Response:
        return self("POST", path, **({"json": json} if json is not None else {}), **how)


def metric_values(metrics: Any, name: str) -> dict[tuple[str, ...], float]:
    """Values of a metric by their labels, as a scraper of the page reads them."""
    families = text_string_to_metric_families(metrics.page().decode("utf-8"))
    samples = [sample for family in families for sample in family.samples]
    return {tuple(sample.labels.values()): sample.value for sample in samples if sample.name == name}


@pytest.fixture
def encoder() -> FakeEncoder:
    return FakeEncoder()


@pytest.fixture
def make_client() -> Iterator[Any]:
    apps: list[Any] = []

    def make(searcher: Any = None, encoder: Any = None, documents: Any = None, **settings: Any) -> Client:
        searcher = searcher or FakeSearcher(DOCUMENTS, encoder or FakeEncoder())
        app = create_app(searcher, ServeSettings(**settings), documents=documents)
        apps.append(app)
        return Client(app)

    yield make
    for app in apps:
        app.state.generations.current.close()


@pytest.fixture
def client(make_client: Any, encoder: FakeEncoder) -> Client:
    return make_client(FakeSearcher(DOCUMENTS, encoder), model_name="fake")


@pytest.fixture(scope="session")
def index(tmp_path_factory: Any) -> Path:
    """An index of texts encoded by the fake encoder."""
    folder = tmp_path_factory.mktemp("index")
    return make_index(folder, DOCUMENTS)


@pytest.fixture
def serve(index: Path) -> Iterator[Any]:
    """Starts servers in processes of their own."""
    running: list[Server] = []

    def start(where: Path | None = None, **how: Any) -> Server:
        server = Server(where or index, **how)
        running.append(server)
        return server

    yield start
    for server in running:
        server.kill()


@pytest.fixture(scope="module")
def lasting(index: Path) -> Iterator[Any]:
    """Starts servers that the tests of a file share: asked twice for the same settings, it starts one."""
    running: dict[str, Server] = {}

    def start(**how: Any) -> Server:
        if repr(how) not in running:
            running[repr(how)] = Server(index, **how)
        return running[repr(how)]

    yield start
    for server in running.values():
        server.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the pages of a file."""
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens pages in Chromium; see `open_page` for what they must not do."""
    with ExitStack() as pages:
        yield lambda url, **how: pages.enter_context(open_page(browser, url, **how))
