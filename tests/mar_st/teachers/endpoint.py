"""A test server of embeddings with configurable answers."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.mar_st.teachers.digits import Digits

TEXTS = [f"文本{index}" for index in range(40)]

DIM = 5


live = Digits(dim=DIM).live


@contextmanager
def serving():
    """The endpoint, while it answers."""
    with Fake() as fake:
        thread = threading.Thread(target=fake.serve_forever, daemon=True)
        thread.start()
        yield fake
        fake.shutdown()
        thread.join()


class Fake(ThreadingHTTPServer):
    """An embeddings endpoint that keeps an account of what was bought."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sold: list[str] = []
        self.requests = 0
        self.keys: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.failures: dict[int, tuple[int, str]] = {}
        self.bodies: list[bytes] = []
        self.location = ""
        self.dim = DIM
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests += 1
            server.keys.append(self.headers["Authorization"])
            server.headers.append(dict(self.headers))
            failure = server.failures.get(server.requests)
        if self.path != "/v1/embeddings" or failure:
            status, message = failure or (404, "no such path")
            self._answer(status, {"error": {"message": message}})
            return
        if server.bodies:
            self._send(200, server.bodies[0])
            return
        texts = content["input"]
        with server.lock:
            server.sold += texts
        vectors = live(texts)[:, : server.dim]
        data = [{"object": "embedding", "index": i, "embedding": v.tolist()} for i, v in enumerate(vectors)]
        data.reverse()  # the order is in 'index'
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        self._answer(200, {"object": "list", "data": data, "model": content["model"], "usage": usage})

    def _answer(self, status, content):
        self._send(status, json.dumps(content).encode())

    def _send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass
