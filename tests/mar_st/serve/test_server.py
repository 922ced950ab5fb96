"""The server as a process: start, stop, signals, overload, hot swap, clients that misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest

from tests.mar_st.serve.fakes import DOCUMENTS, FakeEncoder, vector_of
from tests.mar_st.serve.servers import make_index

KEY = "a-key-of-enough-characters"


def expected(index, query, k=3, **options):
    from mar_st.index import Searcher

    return [hit.to_json() for hit in Searcher.open(index, FakeEncoder()).search([query], k, **options)[0]]


def same(hits, wanted):
    assert [hit["id"] for hit in hits] == [hit["id"] for hit in wanted]
    np.testing.assert_allclose([hit["score"] for hit in hits], [hit["score"] for hit in wanted], atol=1e-6)
    assert [hit["snippet"] for hit in hits] == [hit["snippet"] for hit in wanted]


def test_a_stock_openai_client_and_searches_are_answered(serve, index):
    server = serve(api_keys=[KEY])
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        embeddings = client.embeddings.create(model="fake", input=["头疼", "感冒"])  # base64 on the wire
        np.testing.assert_array_equal(
            np.float32([entry.embedding for entry in embeddings.data]), [vector_of("头疼"), vector_of("感冒")]
        )
        plain = client.embeddings.create(model="fake", input="头疼", encoding_format="float", dimensions=8)
        assert len(plain.data[0].embedding) == 8
        assert plain.usage.total_tokens == 4
        assert [model.id for model in client.models.list()] == ["fake"]
        query = client.embeddings.create(model="fake", input="头疼", extra_body={"input_type": "query"})
        assert query.data[0].embedding == embeddings.data[0].embedding
        with pytest.raises(openai.BadRequestError, match="token ids"):
            client.embeddings.create(model="fake", input=[[1, 2, 3]])
        with pytest.raises(openai.BadRequestError, match="--document-encoder"):
            client.embeddings.create(model="fake", input="x", extra_body={"input_type": "document"})
        with pytest.raises(openai.NotFoundError, match="'fake'"):
            client.embeddings.create(model="text-embedding-3-small", input="x")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0).models.list()

    headers = {"X-API-Key": KEY}
    with httpx.Client(base_url=server.url) as client:
        assert client.post("/search", json={"query": "头疼"}).status_code == 401
        assert client.get("/metrics").status_code == 401
        assert client.get("/healthz").status_code == 200
        for options in ({}, {"hybrid": True}, {"where": {"department": "内科"}}):
            response = client.post("/search", json={"query": "头疼吃药", "k": 3, **options}, headers=headers)
            same(response.json()["hits"], expected(index, "头疼吃药", **options))
        unknown = client.post("/search", json={"query": "x", "where": {"科室": "x"}}, headers=headers)
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "where")


@pytest.mark.thorough
def test_stock_clients_name_the_side_by_the_model(serve):
    server = serve(document_encoder="fake")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["fake", "fake-document"]
        for name, sign in (("fake", 1), ("fake-document", -1)):
            assert client.models.retrieve(name).id == name
            embeddings = client.embeddings.create(model=name, input=["头疼"])
            np.testing.assert_array_equal(np.float32(embeddings.data[0].embedding), sign * vector_of("头疼"))
        with pytest.raises(openai.NotFoundError, match="'fake-document'"):
            client.models.retrieve("text-embedding-3-small")


@pytest.mark.thorough
def test_a_query_never_reaches_the_log(serve):
    server = serve(access_log=True, max_body=2000)
    secret = "绝密病情"
    server.search(secret)
    server.search(secret * 100)
    httpx.post(f"{server.url}/search?q={secret}", content=f'{{"query": "{secret}'.encode())
    httpx.post(f"{server.url}/v1/embeddings", json={"input": [secret], "model": secret})
    httpx.get(f"{server.url}/{secret}", params={"q": secret})
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))) as raw:
        raw.sendall(f"GET /{secret} HTTP/9.9\r\n{secret}\r\n\r\n".encode())
        assert b" 400 " in raw.recv(1000)
    assert server.stop() == 0
    log = "".join(server.log)
    assert "POST /search 200" in log
    assert "GET other 404" in log
    assert secret not in log
    assert "%E7%BB%9D" not in log


async def hammer(server, queries, *, callers, stop):
    """Searches in turn from several callers until told to stop: query, status, body and seconds of each."""
    results = []

    async def call(number):
        place = number
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while not stop.is_set():
            query = queries[place % len(queries)]
            place += callers
            began = time.monotonic()
            try:
                status, body, last = await exchange(reader, writer, {"query": query, "k": 3})
            except (OSError, EOFError) as error:
                results.append((query, type(error).__name__, b"", 0.0))
                return
            results.append((query, status, body, time.monotonic() - began))
            if status == 429:
                await asyncio.sleep(0.02)  # so that the callers do not starve themselves
            if last:
                return

    await asyncio.gather(*(call(number) for number in range(callers)))
    return results


async def exchange(reader, writer, content):
    """One request on an open connection: status, body, and whether the server ends the connection."""
    body = json.dumps(content).encode()
    writer.write(
        b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(size), b"connection: close" in head


def run_hammer(server, queries, callers=16):
    """Starts callers in a thread; gives a function that stops them and returns the results."""
    stop = threading.Event()
    results = []
    thread = threading.Thread(
        target=lambda: results.extend(asyncio.run(hammer(server, queries, callers=callers, stop=stop)))
    )
    thread.start()

    def finish():
        stop.set()
        thread.join(30)
        return results

    return finish


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_stop_under_load_loses_nothing_that_was_accepted(serve, index, workers):
    server = serve(seconds=0.05, workers=workers)
    queries = [f"问题{number}" for number in range(40)]
    wanted = {query: [hit["id"] for hit in expected(index, query)] for query in queries}
    finish = run_hammer(server, queries)
    time.sleep(1.0)
    assert server.stop() == 0
    results = finish()
    outcomes = {outcome for _, outcome, _, _ in results}
    assert outcomes == {200}, outcomes  # whoever had a connection had an answer to all that was asked
    answered = [(query, body) for query, outcome, body, _ in results if outcome == 200]
    assert len(answered) > 30
    for query, body in answered:
        assert [hit["id"] for hit in httpx.Response(200, content=body).json()["hits"]] == wanted[query]


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_hot_swap_under_load_fails_no_request(serve, tmp_path, workers):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, prefix in ((old, "a"), (new, "b")):
        folder.mkdir()
        make_index(folder, DOCUMENTS, prefix)
    current = tmp_path / "current"
    current.symlink_to(old / "index")

    def point_to(folder):
        link = tmp_path / "next"
        link.symlink_to(folder / "index")
        link.replace(current)

    server = serve(current, api_keys=[KEY], workers=workers)
    headers = {"authorization": f"Bearer {KEY}"}

    def ask(query):
        answer = httpx.post(
            f"{server.url}/search", json={"query": query, "k": 3}, headers=headers, timeout=20
        )
        return [hit["id"] for hit in answer.json()["hits"]]

    def until(prefix, seconds=15):
        end = time.monotonic() + seconds
        while not all(ask("头疼")[0].startswith(prefix) for _ in range(6)):
            assert time.monotonic() < end
            time.sleep(0.1)

    queries = [f"问题{number}" for number in range(40)]
    wanted = {query: [hit["id"][1:] for hit in expected(old / "index", query)] for query in queries}
    seen = []
    stop = threading.Event()

    def load():
        with httpx.Client(base_url=server.url, headers=headers, timeout=20) as client:
            place = 0
            while not stop.is_set():
                query = queries[place % len(queries)]
                place += 1
                answer = client.post("/search", json={"query": query, "k": 3})
                assert answer.status_code == 200, answer.text
                ids = [hit["id"] for hit in answer.json()["hits"]]
                assert len({name[0] for name in ids}) == 1  # all from one generation
                assert [name[1:] for name in ids] == wanted[query]
                seen.append(ids[0][0])

    failures = []

    def guarded():
        try:
            load()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    point_to(new)
    answer = httpx.post(f"{server.url}/admin/reload", json={}, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"documents": len(DOCUMENTS), "workers": workers}
    assert all(ask("头疼")[0].startswith("b") for _ in range(6))  # every worker, at once
    point_to(old)
    server.signal(signal.SIGHUP)
    until("a")
    current.unlink()  # an index that is not there changes nothing
    answer = httpx.post(f"{server.url}/admin/reload", json={}, headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_reloaded")
    until("a")
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not failures, failures
    assert {"a", "b"} <= set(seen)
    assert server.stop() == 0


@pytest.mark.thorough
def test_a_watched_index_is_swapped_when_it_changes(serve, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    make_index(tmp_path / "old", DOCUMENTS, "a")
    make_index(tmp_path / "new", DOCUMENTS, "b")
    current = tmp_path / "current"
    current.symlink_to(tmp_path / "old" / "index")
    server = serve(current, watch=True)
    assert server.search("头疼").json()["hits"][0]["id"].startswith("a")
    (tmp_path / "next").symlink_to(tmp_path / "new" / "index")
    (tmp_path / "next").replace(current)
    end = time.monotonic() + 10
    while not server.search("头疼").json()["hits"][0]["id"].startswith("b"):
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.thorough
def test_overload_gets_429_and_accepted_requests_are_in_time(serve):
    server = serve(per_text=0.02, timeout=2.0, max_queue=20, max_batch=4)  # 50 queries a second
    finish = run_hammer(server, [f"问题{number}" for number in range(50)], callers=80)
    time.sleep(3)
    results = finish()
    outcomes = [outcome for _, outcome, _, _ in results]
    assert set(outcomes) == {200, 429}
    assert outcomes.count(429) > outcomes.count(200)
    # A second on top of the limit, for 80 callers share this process.
    assert max(seconds for _, outcome, _, seconds in results if outcome == 200) < 3.0
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'mar_errors_total{kind="overloaded"}' in metrics


@pytest.mark.slow
def test_two_workers_share_load_and_metrics(serve):
    server = serve(workers=2)
    queries = [f"问题{number}" for number in range(40)]
    finish = run_hammer(server, queries, callers=8)
    time.sleep(1.5)
    answered = sum(outcome == 200 for _, outcome, _, _ in finish())
    counts = [
        float(re.search(r'mar_requests_total\{route="/search",status="200"\} (\S+)', text)[1])
        for text in (httpx.get(f"{server.url}/metrics").text for _ in range(4))
    ]
    assert counts == [answered] * 4  # whichever worker is asked
    # A worker that dies is replaced, and nobody waits for it.
    children = {int(name) for name in child_pids(server.process.pid)}
    assert len(children) == 2
    os.kill(min(children), signal.SIGKILL)
    end = time.monotonic() + 20
    while len(now := {int(name) for name in child_pids(server.process.pid)} - {min(children)}) < 2:
        assert time.monotonic() < end, now
        time.sleep(0.2)
    assert server.search("头疼").status_code == 200
    assert server.stop() == 0


def child_pids(pid):
    """Worker processes: children that run Python, not the one that tracks resources."""
    for name in (entry.name for entry in Path("/proc").iterdir()):
        if name.isdigit():
            try:
                stat, line = Path(f"/proc/{name}/stat"), Path(f"/proc/{name}/cmdline")
                parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
                if parent == pid and "spawn_main" in line.read_text():
                    yield name
            except OSError:
                continue


@pytest.mark.thorough
def test_workers_end_with_their_parent(serve):
    server = serve(workers=2)
    children = [int(name) for name in child_pids(server.process.pid)]
    os.kill(server.process.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() and not zombie(pid) for pid in children):
        assert time.monotonic() < end
        time.sleep(0.1)


def zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
