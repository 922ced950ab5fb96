"""Queues and micro-batches of an engine."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from mar_st.online.waiting import EncodeRequest
from tests.mar_st.serve.fakes import FakeEncoder, hits_of


async def until(true):
    """Waits until the function returns a true value."""
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


def test_concurrent_searches_are_batched_and_not_mixed_up(client, encoder):
    import threading

    queries = [f"问题{number}" for number in range(24)]
    before = len(encoder.batches)
    encoder.gate = threading.Event()
    threading.Timer(0.3, encoder.gate.set).start()
    answers = asyncio.run(
        client.many(*(("POST", "/search", {"json": {"query": q, "k": 2}}) for q in queries))
    )
    assert [answer.json()["hits"] for answer in answers] == [hits_of(query, 2) for query in queries]
    assert max(encoder.batches[before:]) >= 12
    assert sum(encoder.batches[before:]) == len(queries)


def test_one_failing_caller_fails_alone(client, caplog):
    texts = ["一", "炸", "坏", "二"]
    with caplog.at_level(logging.DEBUG):
        answers = asyncio.run(
            client.many(*(("POST", "/search", {"json": {"query": text}}) for text in texts))
        )
    assert [answer.status_code for answer in answers] == [200, 500, 500, 200]
    assert answers[1].json()["error"]["code"] == "internal"
    assert "炸" not in caplog.text
    assert "秘密" not in caplog.text
    assert "坏" not in caplog.text
    assert "ValueError" in caplog.text or "RuntimeError" in caplog.text


@pytest.mark.thorough
def test_a_slow_encoder_is_a_504_and_a_full_queue_a_429(make_client):
    encoder = FakeEncoder()
    client = make_client(encoder=encoder, timeout=3.0, max_queue=2, max_batch=1)
    engine = client.app.state.generations.current
    encoder.gate = threading.Event()

    async def ask():
        search = ("POST", "/search", {"json": {"query": "头疼"}})
        before = len(encoder.batches)
        first = asyncio.ensure_future(client.many(search))
        await until(lambda: len(encoder.batches) > before)  # the encoder has the first, and holds it
        waiting = [asyncio.ensure_future(client.many(search)) for _ in range(2)]
        await until(lambda: engine.waiting == 2)
        refused = await client.many(*[search] * 9)
        slow = [answer.status_code for batch in await asyncio.gather(first, *waiting) for answer in batch]
        encoder.gate.set()
        return slow, refused

    slow, refused = asyncio.run(ask())
    assert slow == [504] * 3
    assert [answer.status_code for answer in refused] == [429] * 9
    assert int(refused[0].headers["retry-after"]) >= 1
    assert refused[0].json()["error"]["code"] == "overloaded"


def test_an_engine_is_full_when_it_refuses_a_search(make_client):
    encoder = FakeEncoder()
    client = make_client(encoder=encoder, max_queue=3, max_batch=1, timeout=5.0)
    engine = client.app.state.generations.current
    assert (engine.full(), engine.waiting) == (None, 0)
    encoder.gate = threading.Event()

    async def ask(number):
        search = ("POST", "/search", {"json": {"query": "头疼"}})
        before = len(encoder.batches)
        answers = [asyncio.ensure_future(client.many(search))]
        await until(lambda: len(encoder.batches) > before)  # the encoder has the first, and holds it
        answers += [asyncio.ensure_future(client.many(search)) for _ in range(number)]
        await until(lambda: engine.waiting == number)
        full, waiting = engine.full(), engine.waiting
        [last] = await client.many(("GET", "/healthz", {}))
        refused = None
        if full is not None:
            [refused] = await client.many(search)
        encoder.gate.set()
        codes = [answer.status_code for batch in await asyncio.gather(*answers) for answer in batch]
        return full, waiting, codes, refused and refused.status_code, last.status_code

    assert asyncio.run(ask(2)) == (None, 2, [200] * 3, None, 200)
    encoder.gate.clear()
    full, waiting, codes, refused, other = asyncio.run(ask(3))
    assert full is not None
    assert (waiting, codes, refused, other) == (3, [200] * 4, 429, 200)


def test_queries_encoded_together_are_searched_together(make_client, monkeypatch):
    encoder = FakeEncoder()
    client = make_client(encoder=encoder)
    encoder.gate = threading.Event()
    finish = EncodeRequest.finish

    def slowly(*arguments):
        finish(*arguments)
        time.sleep(0.02)  # long enough for a search to begin

    monkeypatch.setattr(EncodeRequest, "finish", slowly)
    engine = client.app.state.generations.current

    async def ask():
        search = ("POST", "/search", {"json": {"query": "头疼"}})
        answers = [asyncio.ensure_future(client.many(*[search] * 6))]
        await until(lambda: engine.waiting + sum(encoder.batches) >= 6)
        encoder.gate.set()
        await asyncio.gather(*answers)

    asyncio.run(ask())
    values = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines())
    assert float(values['mar_batch_size_sum{stage="search"}']) == 6
    assert float(values['mar_batch_size_count{stage="search"}']) <= len(encoder.batches)
