"""Raw connections to a server that is being tested."""

from __future__ import annotations

import asyncio
import re
import socket
import time

import uvloop
from uvicorn.server import ServerState

from mar_st.serve.connections.config import ServeConfig
from mar_st.serve.connections.guard import ConnectionLimits
from mar_st.serve.connections.protocol import GuardedProtocol

JSON = b"Content-Type: application/json"


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def read_all(connection, seconds=10):
    connection.settimeout(seconds)
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def with_server(client, app, protocol=GuardedProtocol, *, most=9, busy=None, send_seconds=10.0):
    """Run `client(port)` in a thread beside a server of this process, whose turns may be made long."""

    async def run():
        config = ServeConfig(
            ConnectionLimits(max_connections=most, send_seconds=send_seconds),
            app=app,
            timeout_keep_alive=1,
            lifespan="off",
            proxy_headers=False,
        )
        config.load()
        state, loop = ServerState(), asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        config.guard.listening = listening
        server = await loop.create_server(lambda: protocol(config, state, {}), sock=listening, backlog=1000)

        def turn():
            time.sleep(busy)
            loop.call_soon(turn)

        if busy is not None:
            loop.call_soon(turn)
        async with server:
            await asyncio.wait_for(asyncio.to_thread(client, server.sockets[0].getsockname()[1]), 20)

    uvloop.run(run())


def read_answer(connection):
    """Status, head and body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        assert part, "closed without an answer"
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
    while len(body) < length:
        part = connection.recv(65536)
        assert part, "closed within an answer"
        body += part
    assert len(body) == length
    return int(head.split()[1]), head, body


def post(path, body=b"{}", *headers):
    lines = [b"POST %s HTTP/1.1" % path, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
