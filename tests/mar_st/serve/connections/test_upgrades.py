"""Tests that clients which offer an upgrade to HTTP/2 are answered in HTTP/1.1."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess

import httptools
import pytest

from mar_st.serve.connections.upgrades import without_offer

KEY = "a-key-of-enough-characters"

#: What Java's `HttpClient` (17) and curl (7.88) send, byte for byte but for the host, the path and the body.
JAVA = (
    "{method} {path} HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: {length}\r\n"
    "Host: 127.0.0.1:8000\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
    "User-Agent: Java-http-client/17.0.15\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer a-key-of-enough-characters\r\n\r\n"
)
CURL = (
    "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n"
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    "Content-Type: application/json\r\nAuthorization: Bearer a-key-of-enough-characters\r\n"
    "Content-Length: {length}\r\n\r\n"
)
PLAIN = (
    "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer a-key-of-enough-characters\r\nContent-Length: {length}\r\n\r\n"
)

REQUESTS = [
    ("POST", "/search", {"query": "头疼", "k": 2}),
    ("POST", "/v1/embeddings", {"model": "fake", "input": ["头疼"]}),
    ("POST", "/admin/reload", {}),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/fake", None),
    ("GET", "/info", None),
    ("GET", "/", None),
    ("GET", "/healthz", None),
]


def bytes_of(form, method, path, content):
    body = b"" if content is None else json.dumps(content, ensure_ascii=False).encode()
    return form.format(method=method, path=path, length=len(body)).encode() + body


def answers(connection, count):
    """Statuses and bodies of so many answers of a connection."""
    connection.settimeout(20)
    data, responses = b"", []
    while len(responses) < count:
        head, separator, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) if separator else 0
        if not separator or len(rest) < length:
            received = connection.recv(65536)
            assert received, data
            data += received
            continue
        responses.append((int(head.split()[1]), rest[:length]))
        data = rest[length:]
    assert not data
    return responses


@pytest.fixture
def server(lasting):
    return lasting(api_keys=[KEY])


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def without_times(answer):
    status, body = answer
    content = json.loads(body) if body.startswith(b"{") else body
    if isinstance(content, dict):
        content.pop("timing", None)
    return status, content


@pytest.mark.thorough(but=["curl"])
@pytest.mark.parametrize("form", [JAVA, CURL], ids=["java", "curl"])
def test_each_endpoint_answers_as_to_a_plain_request(server, form):
    log_lines = len(server.log)
    with connect(server) as plain, connect(server) as offering:  # one connection each, for all requests
        for request in REQUESTS:
            plain.sendall(bytes_of(PLAIN, *request))
            offering.sendall(bytes_of(form, *request))
            expected, actual = (without_times(answers(one, 1)[0]) for one in (plain, offering))
            assert expected[0] == 200
            if request[1] != "/info":  # it counts what was opened
                assert actual == expected
    assert not any("ERROR" in line or "WARNING" in line for line in server.log[log_lines:])


def test_split_and_consecutive_requests_are_answered(server):
    """Wherever the bytes are split, the body belongs to its request; the bytes after it are the next one."""
    one = bytes_of(JAVA, *REQUESTS[0])
    with connect(server) as connection:
        connection.sendall(one)
        expected = without_times(answers(connection, 1)[0])
        head = one.index(b"\r\n\r\n")
        for cut in (1, 40, head, head + 2, head + 4, head + 5, len(one) - 1):
            connection.sendall(one[:cut])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(one[cut:])
            assert without_times(answers(connection, 1)[0]) == expected
        connection.sendall(one * 3 + bytes_of(PLAIN, *REQUESTS[0]) + bytes_of(CURL, *REQUESTS[1]))
        *searches, embedding = answers(connection, 5)
        assert [without_times(answer) for answer in searches] == [expected] * 4
        assert embedding[0] == 200


def test_a_chunked_body_is_read(server):
    method, path, content = REQUESTS[0]
    body = json.dumps(content, ensure_ascii=False).encode()
    head = JAVA.format(method=method, path=path, length=0).replace(
        "Content-Length: 0", "Transfer-Encoding: chunked"
    )
    with connect(server) as connection:
        connection.sendall(head.encode())
        for part in (body[:5], body[5:]):
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\n\r\n")
        assert answers(connection, 1)[0][0] == 200


@pytest.mark.thorough
def test_an_upgrade_does_not_bypass_key_or_size_limits(serve):
    server = serve(api_keys=[KEY], max_body=1000)
    with connect(server) as connection:
        connection.sendall(bytes_of(JAVA.replace("Bearer a", "Bearer b"), *REQUESTS[0]))
        assert answers(connection, 1)[0][0] == 401
    with connect(server) as connection:
        connection.sendall(bytes_of(JAVA, "POST", "/search", {"query": "疼" * 500}))
        assert answers(connection, 1)[0][0] == 413


@pytest.mark.parametrize(
    "raw",
    [
        b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        JAVA.format(method="POST", path="/search", length="5\r\nTransfer-Encoding: chunked").encode(),
        JAVA.format(method="POST", path="/search", length="5\r\nContent-Length: 6").encode(),
    ],
    ids=["connect", "connect with an offer", "http/2 at once", "two framings", "two lengths"],
)
def test_an_unsupported_request_is_a_400_and_closes_the_connection(server, raw):
    with connect(server) as connection:
        connection.sendall(raw + b"\x00" * 20)
        assert answers(connection, 1)[0][0] == 400
        assert connection.recv(10) == b""
    assert server.search("头疼").status_code == 401  # it lives


def test_a_websocket_is_not_opened(server):
    offer = PLAIN.replace("Host:", "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nHost:")
    with connect(server) as connection:
        connection.sendall(bytes_of(offer, *REQUESTS[0]))
        assert answers(connection, 1)[0][0] == 200


@pytest.mark.parametrize(
    ("before", "after"),
    [("Connection: Upgrade", "Connection: close, Upgrade"), ("HTTP/1.1", "HTTP/1.0")],
    ids=["close", "http/1.0"],
)
def test_an_offer_on_a_connection_that_closes_after_the_answer_is_answered(server, before, after):
    with connect(server) as connection:
        connection.sendall(bytes_of(JAVA.replace(before, after), *REQUESTS[0]))
        assert answers(connection, 1)[0][0] == 200
        assert connection.recv(10) == b""


def test_only_the_upgrade_offer_is_removed_from_the_head():
    headers = [
        (b"host", b"a"),
        (b"connection", b"Upgrade, close ,HTTP2-Settings"),
        (b"connection", b"upgrade"),
        (b"upgrade", b"h2c"),
        (b"http2-settings", b"AAM"),
        (b"x-text", "头".encode()),
    ]
    head = without_offer(b"POST", b"/a?b=%20", "1.1", headers)
    expected = (
        b"POST /a?b=%20 HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-text: " + "头".encode() + b"\r\n\r\n"
    )
    assert head == expected
    parser = httptools.HttpRequestParser(object())
    parser.feed_data(head)
    assert not parser.should_upgrade()


JAVA_PROGRAM = """
import java.net.URI;
import java.net.http.*;

public class Post {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int time = 0; time < 3; time++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json").header("X-API-Key", arguments[1])
                .POST(HttpRequest.BodyPublishers.ofString(arguments[2])).build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.body());
        }
    }
}
"""


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("java") is None, reason="no java")
def test_a_stock_java_client_gets_answers(server, tmp_path):
    (tmp_path / "Post.java").write_text(JAVA_PROGRAM, encoding="utf-8")
    command = ["java", "-XX:TieredStopAtLevel=1", str(tmp_path / "Post.java"),
               f"{server.url}/v1/embeddings", KEY, '{"model": "fake", "input": "headache"}']  # fmt: skip
    process = subprocess.run(command, capture_output=True, text=True, timeout=100)
    lines = process.stdout.splitlines()
    assert len(lines) == 3, process.stderr
    assert len({*lines}) == 1
    assert lines[0].startswith('200 {"object":"list"')


def has_http2_curl():
    curl = shutil.which("curl")
    return curl is not None and "HTTP2" in subprocess.run([curl, "-V"], capture_output=True, text=True).stdout


@pytest.mark.skipif(not has_http2_curl(), reason="no curl with HTTP/2")
def test_curl_gets_an_answer_if_it_offers_http_2(server):
    command = ["curl", "-s", "--http2", "-H", "Content-Type: application/json", "-H", f"X-API-Key: {KEY}",
               "-d", '{"query": "头疼", "k": 1}', f"{server.url}/search"]  # fmt: skip
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert len(json.loads(process.stdout)["hits"]) == 1
