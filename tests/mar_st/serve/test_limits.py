"""Tests of every limit: a request at the limit is answered in time, and one beyond it is refused."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import httpx
import numpy as np
import orjson
import pytest

from mar_st.index import Searcher
from mar_st.online import DeadlinePassed
from mar_st.serve.api.lengths import CHARACTERS_PER_TOKEN
from tests.mar_st.serve.fakes import DIM, DOCUMENTS, FakeEncoder, FakeSearcher, vector_of
from tests.mar_st.serve.servers import make_index

JSON = {"content-type": "application/json"}


def made_text(length, seed=0):
    generator = random.Random(seed)
    return "".join(chr(generator.randint(0x4E00, 0x9FA5)) for _ in range(length))


class LongEncoder(FakeEncoder):
    max_length = 512


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    make_index(folder, [made_text(700, seed) for seed in range(1100)])
    return Searcher.open(folder / "index", LongEncoder())


def timed(client, *bodies):
    """Statuses and seconds of requests to `/search` that are sent together."""

    async def run():
        transport = httpx.ASGITransport(client.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as sender:

            async def one(body):
                began = time.monotonic()
                answer = await sender.post("/search", content=body, headers=JSON)
                return answer, time.monotonic() - began

            return await asyncio.gather(*map(one, bodies))

    return asyncio.run(run())


@pytest.mark.thorough
@pytest.mark.parametrize("by_vector", [False, True])
def test_the_longest_query_delays_no_other_request(make_client, searcher, by_vector):
    client = make_client(searcher, searcher.encoder)
    long = {"query": made_text(340_000, 1), "k": 1000, "truncate": True, "hybrid": True}
    if by_vector:
        long["vector"] = vector_of("x").tolist()
    (longest, seconds), *probes = timed(
        client, orjson.dumps(long), *(orjson.dumps({"query": f"问题{number}"}) for number in range(10))
    )
    assert longest.status_code == 200
    assert len(longest.json()["hits"]) == 1000
    assert [answer.status_code for answer, _ in probes] == [200] * 10
    # Before the text was cut for words and snippets, too, this took minutes.
    assert max(seconds, *(took for _, took in probes)) < 6


def test_the_searcher_gets_a_long_text_already_cut(make_client):
    fake = FakeSearcher(DOCUMENTS, FakeEncoder())
    client = make_client(fake)
    text = "疼" * 100_000
    assert client.post("/search", {"query": text, "truncate": True}).json()["truncated"] is True
    assert fake.calls[-1]["texts"] == [text[:62]]  # two of the 64 tokens are special
    fake.encoder.truncation = "left"
    text = made_text(5000)
    assert client.post("/search", {"query": text, "truncate": True}).status_code == 200
    assert fake.calls[-1]["texts"] == [text[-62:]]


def test_long_texts_are_refused_before_they_are_counted(make_client):
    class Counting(FakeEncoder):
        longest = 0

        def count_tokens(self, texts, prompt_name=None):
            self.longest = max(self.longest, *map(len, texts))
            return super().count_tokens(texts)

    encoder = Counting()
    client = make_client(encoder=encoder)
    for path, field in (("/search", "query"), ("/v1/embeddings", "input")):
        for text in ("x" * 500_000, "x" * (CHARACTERS_PER_TOKEN * 64 + 1)):
            refused = client.post(path, {field: text})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "text_too_long")
            assert client.post(path, {field: text, "truncate": True}).status_code == 200
    assert encoder.longest == CHARACTERS_PER_TOKEN * 64
    without = make_client(FakeSearcher(DOCUMENTS))
    vector = vector_of("x").tolist()
    for length, status in ((8192, 200), (8193, 400)):
        assert without.post("/search", {"query": "x" * length, "vector": vector}).status_code == status


def test_the_vector_of_a_cut_query_is_that_of_its_embedding(make_client):
    client = make_client()
    text = made_text(3000)
    body = {"input": text, "truncate": True}
    vector = client.post("/v1/embeddings", body).json()["data"][0]["embedding"]
    by_text = client.post("/search", {"query": text, "truncate": True}).json()["hits"]
    by_vector = client.post("/search", {"vector": vector}).json()["hits"]
    assert [hit["id"] for hit in by_text] == [hit["id"] for hit in by_vector]
    np.testing.assert_allclose(
        [hit["score"] for hit in by_text], [hit["score"] for hit in by_vector], rtol=1e-6
    )


EDGES = [
    ("max_k", 20, lambda n: ("/search", {"query": "x", "k": n})),
    ("max_texts", 20, lambda n: ("/v1/embeddings", {"input": ["x"] * n})),
    ("max_tokens", 60, lambda n: ("/search", {"query": "x" * (n - 2)})),
    ("max_tokens", 660, lambda n: ("/v1/embeddings", {"input": ["x" * 64] * 10 + ["x" * (n - 642)],
                                                      "truncate": True})),
    (None, 62, lambda n: ("/search", {"query": "x" * n})),
    (None, 64, lambda n: ("/search", {"query": "x", "where": {f"f{i}": 1 for i in range(n)}})),
    (None, 10_000, lambda n: ("/search", {"query": "x", "where": {"year": list(range(n))}})),
    (None, DIM, lambda n: ("/search", {"vector": [0.5] * n})),
]  # fmt: skip


@pytest.mark.parametrize(("name", "edge", "make"), EDGES)
def test_allowed_requests_are_answered_and_one_more_is_refused(make_client, name, edge, make):
    fake = FakeSearcher(DOCUMENTS, FakeEncoder())
    fake.index.fields = {"year": "integer", **{f"f{place}": "integer" for place in range(80)}}
    client = make_client(fake, **({name: edge} if name else {}))
    assert client.post(*make(edge)).status_code == 200
    refused = client.post(*make(edge + 1))
    assert refused.status_code == 400
    assert refused.json()["error"]["message"]


def beside(client, gate, edge, probe):
    """Answers to a request that is held until another one was answered, and to that one."""

    async def run():
        transport = httpx.ASGITransport(client.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as sender:
            held = asyncio.create_task(sender.post(edge[0], json=edge[1]))
            while not gate.entered.is_set():
                await asyncio.sleep(0.005)
            try:
                answer = await asyncio.wait_for(sender.post(probe[0], json=probe[1]), 10)
                assert not held.done()
            finally:
                gate.set()
            return await held, answer

    return asyncio.run(run())


class Gate(threading.Event):
    """Holds whoever passes it until it is set."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()

    def hold(self):
        self.entered.set()
        assert self.wait(15), "nobody else was answered meanwhile"


MANY = {f"f{place}": 1 for place in range(64)}
HELD = [
    ("search", {"query": "x", "k": 1000}),
    ("search", {"query": "x", "rerank": 50}),
    ("search", {"query": "x", "where": MANY}),
    ("search", {"query": "x", "where": {"year": list(range(10_000))}}),
    ("search", {"query": "x" * 300, "vector": [0.5] * DIM, "hybrid": True}),
    ("filter", {"query": "x", "where": {"year": list(range(10_000))}}),
    ("answer", {"query": "x", "k": 1000}),
]


@pytest.mark.parametrize(("held", "body"), HELD)
def test_a_probe_is_answered_during_a_request_at_the_limit(make_client, monkeypatch, held, body):
    gate = Gate()

    class Held(FakeSearcher):
        def search_vectors(self, vectors, texts=None, k=10, **options):
            large = (
                k > 100
                or (options.get("rerank") or 0) > 1
                or options.get("where")
                or len((texts or [""])[0]) > 100
            )
            if held == "search" and large:
                gate.hold()
            hits = super().search_vectors(vectors, texts, k, **options)
            if held == "answer" and large:
                hits[0][-1].to_json = lambda: gate.hold() or {}
            return hits

    long = type("Long", (FakeEncoder,), {"max_length": 512})()
    fake = Held([f"文{place}" for place in range(1000)], long, rerank=True)
    fake.index.fields = {"year": "integer", **dict.fromkeys(MANY, "integer")}
    client = make_client(fake, timeout=20.0)
    engine = client.app.state.generations.current
    if held == "filter":
        check = engine.check_filter
        monkeypatch.setattr(engine, "check_filter", lambda where: (where and gate.hold()) or check(where))
    edge, probe = beside(client, gate, ("/search", body), ("/search", {"query": "头疼"}))
    assert (edge.status_code, probe.status_code) == (200, 200)
    assert len(edge.json()["hits"]) == body.get("k", 10)


def test_a_query_waits_for_one_batch_of_many_texts_at_most(make_client):
    gate = Gate()

    class Held(FakeEncoder):
        def encode(self, texts, prompt_name=None):
            if "长" in texts[0] and not gate.is_set():
                gate.hold()
            self.order.append(texts[0][:1])
            return super().encode(texts)

    encoder = Held()
    encoder.order = []
    client = make_client(encoder=encoder, max_queue=256, timeout=20.0)
    order = encoder.order
    order.clear()  # without what was encoded to warm it up

    async def run():
        transport = httpx.ASGITransport(client.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as sender:
            many = [
                asyncio.create_task(sender.post("/v1/embeddings", json={"input": ["长" * 60] * 200}))
                for _ in range(3)
            ]
            while not gate.entered.is_set():
                await asyncio.sleep(0.005)
            while client.app.state.generations.current.waiting < 190:
                await asyncio.sleep(0.005)
            # The queue of texts is over its limit; a query is still accepted, and is next.
            probe = asyncio.create_task(sender.post("/search", json={"query": "头疼"}))
            while not client.app.state.generations.current.encoding.batcher.waiting_short:
                await asyncio.sleep(0.005)
            gate.set()
            return await probe, [await one for one in many]

    probe, many = asyncio.run(run())
    assert probe.status_code == 200
    assert sorted(answer.status_code for answer in many) == [200, 429, 429]
    assert order.index("头") <= 1
    assert order.count("长") >= 4


def test_a_body_of_the_largest_allowed_size_is_accepted(make_client):
    client = make_client(max_body=2000)
    for size, status in ((2000, 200), (2001, 413)):
        body = orjson.dumps({"query": "x"}).ljust(size)
        assert client.post("/search", content=body, headers=JSON).status_code == status


def test_a_search_stops_at_its_deadline(make_client):
    class Slow(FakeSearcher):
        def search_vectors(self, vectors, texts=None, k=10, **options):
            while texts == ["slow"]:
                time.sleep(0.01)
                if time.monotonic() > options["deadline"]:
                    raise DeadlinePassed("stopped")
            return super().search_vectors(vectors, texts, k, **options)

    client = make_client(Slow(DOCUMENTS, FakeEncoder()), timeout=0.3)
    assert client.post("/search", {"query": "slow"}).status_code == 504
    began = time.monotonic()
    assert client.post("/search", {"query": "later"}).status_code == 200
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("options", [{}, {"hybrid": True}, {"rerank": 3}])
def test_every_leg_of_a_search_looks_at_the_deadline(searcher, options):
    class Reranker:
        batch_size = 1

        def score(self, pairs):
            time.sleep(0.2)
            return np.zeros(len(pairs), dtype=np.float32)

    both = Searcher(searcher.index, searcher.encoder, reranker=Reranker() if "rerank" in options else None)
    vectors = searcher.encoder.encode(["头疼"])
    wanted = both.search_vectors(vectors, ["头疼"], 3, **options)
    assert both.search_vectors(vectors, ["头疼"], 3, **options, deadline=time.monotonic() + 20) == wanted
    left = 0.1 if "rerank" in options else -1
    with pytest.raises(DeadlinePassed):
        both.search_vectors(vectors, ["头疼"], 3, **options, deadline=time.monotonic() + left)
    if "hybrid" in options:
        with pytest.raises(DeadlinePassed):
            searcher.index.find_words([made_text(50)], 3, None, deadline=time.monotonic() - 1)
