"""The server as a process: OpenAI's client, hot swaps, overload, a stop under load, what is logged."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest

from tests.mar_st.serve.fakes import KEY, make_index, start, vector_of


@pytest.fixture
def keys(tmp_path, monkeypatch):
    monkeypatch.setenv("MAR_API_KEYS", KEY)
    return {"x-api-key": KEY}


def test_a_stock_openai_client_is_answered(serve, keys):
    server = serve()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        embeddings = client.embeddings.create(model="fake", input=["头疼", "感冒"])  # base64 on the wire
        np.testing.assert_array_equal(
            np.float32([entry.embedding for entry in embeddings.data]), [vector_of("头疼"), vector_of("感冒")]
        )
        short = client.embeddings.create(model="fake", input="头疼", encoding_format="float", dimensions=8)
        assert (len(short.data[0].embedding), short.usage.total_tokens) == (8, 4)
        assert [model.id for model in client.models.list()] == ["fake"]
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="fake", input=[[1, 2, 3]])
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="text-embedding-3-small", input="x")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0).models.list()


class Callers:
    """Callers that search again and again, in threads, until they are stopped."""

    def __init__(self, server, headers=None, count=4):
        self.answers, self._stop = [], threading.Event()
        self._server, self._headers = server, headers
        self._threads = [threading.Thread(target=self._call, args=[number]) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _call(self, number):
        with httpx.Client(base_url=self._server.url, headers=self._headers, timeout=20) as client:
            while not self._stop.is_set():
                body = {"query": f"问题{number}", "k": 3}
                try:
                    answer = client.post("/search", json=body)
                except httpx.ConnectError:
                    return
                except httpx.HTTPError as error:
                    self.answers.append((number, 0, repr(error)))
                    return
                self.answers.append((number, answer.status_code, answer.json()))

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
        return self.answers


@pytest.mark.slow
def test_a_hot_swap_under_load_fails_no_request(serve, tmp_path, keys):
    old, new = (make_index(tmp_path / name, prefix=prefix) for name, prefix in (("old", "a"), ("new", "b")))
    current = tmp_path / "current"
    current.symlink_to(old)

    def point_to(folder):
        (tmp_path / "next").symlink_to(folder)
        (tmp_path / "next").replace(current)

    def first():
        answer = httpx.post(f"{server.url}/search", json={"query": "头疼", "k": 1}, headers=keys, timeout=20)
        return answer.json()["hits"][0]["id"][0]

    def reload():
        return httpx.post(f"{server.url}/admin/reload", headers=keys, timeout=20)

    server = serve(current, timeout=1.0)
    callers = Callers(server, keys)
    point_to(new)
    assert reload().json() == {"documents": 6}
    assert first() == "b"
    point_to(old)
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 10
    while first() != "a":
        assert time.monotonic() < end
        time.sleep(0.05)
    current.unlink()  # an index that is not there changes nothing
    failed = reload()
    assert (failed.status_code, failed.json()["error"]["code"]) == (409, "not_reloaded")
    time.sleep(1.2)  # the replaced engines are closed
    assert first() == "a"
    answers = callers.stop()
    assert {status for _, status, _ in answers} == {200}
    for _, _, content in answers:
        assert len({hit["id"][0] for hit in content["hits"]}) == 1  # all from one generation
    assert server.stop()[0] == 0


@pytest.mark.slow
def test_overload_gets_429_and_accepted_requests_are_in_time(serve):
    server = serve(per_text=0.02, timeout=2.0)  # 50 queries a second
    callers = Callers(server, count=90)
    time.sleep(2)
    statuses = [status for _, status, _ in callers.stop()]
    assert set(statuses) == {200, 429}


@pytest.mark.slow
def test_a_stop_under_load_loses_nothing_that_was_accepted(serve):
    server = serve(per_text=0.02)
    callers = Callers(server, count=8)
    time.sleep(0.5)
    assert server.stop()[0] == 0
    answers = callers.stop()
    assert len(answers) > 8
    # A request on a kept connection that crosses its closing was never accepted.
    lost = [answer for _, status, answer in answers if status != 200]
    assert all("disconnected" in text or "ReadError" in text for text in lost)


def test_a_query_never_reaches_the_log(serve):
    server = serve()
    secret = "绝密病情"
    server.search(secret)
    server.search(secret * 100)
    server.search("炸")
    httpx.post(f"{server.url}/search?q={secret}", content=f'{{"query": "{secret}'.encode())
    httpx.get(f"{server.url}/{secret}", params={"q": secret})
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))) as raw:
        raw.sendall(f"GET /{secret} HTTP/9.9\r\n{secret}\r\n\r\n".encode())
        raw.recv(1000)
    code, log = server.stop()
    assert code == 0
    assert "KeyError in a request" in log
    assert not any(text in log for text in (secret, "%E7%BB%9D", "炸"))


def test_reloads_come_together_and_do_not_wait_for_pipes(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(KEY)
    keys.chmod(0o600)
    server = serve(api_keys=str(keys))
    headers = {"x-api-key": KEY}

    def generation():
        return httpx.get(f"{server.url}/info", headers=headers, timeout=5).json()["generation"]

    for _ in range(5):
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.0003)
    end = time.monotonic() + 10
    while generation() < 2:
        assert time.monotonic() < end
    keys.unlink()
    os.mkfifo(keys, 0o600)
    refused = httpx.post(f"{server.url}/admin/reload", headers=headers, timeout=5)
    assert refused.status_code == 409
    assert generation() >= 2


def test_the_log_is_json_without_control_characters(serve, index, tmp_path):
    current = tmp_path / "now\x1b[31m"
    current.symlink_to(index)
    server = serve(current, log_queries=True)
    server.search("头疼\x9b31m")
    current.unlink()
    server.process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    _, log = server.stop()
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert any(message.startswith("头疼") for message in messages)
    assert any("old one still answers" in message for message in messages)
    assert all(character.isprintable() for message in messages for character in message)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_stops_nothing(index):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Path("/dev/full").open("w") as full:
        process = start(index, full, port=port)
    try:
        end = time.monotonic() + 20
        while True:
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
                break
            except httpx.ConnectError:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_a_taken_port_is_one_error(serve, index):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(AssertionError, match="in use"):
        serve(port=taken.getsockname()[1])
