"""The example proxies in front of a real server; ports, names and certificates are replaced."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.mar_st.serve.fakes import DOCUMENTS
from tests.mar_st.serve.servers import Server, make_index

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
NGINX, CADDY, OPENSSL = (
    shutil.which("nginx") or "/usr/sbin/nginx",
    shutil.which("caddy"),
    shutil.which("openssl"),
)

KEY = "a-key-of-enough-characters"
NAME = "search.example.org"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Iterator[Server]:
    index = make_index(tmp_path_factory.mktemp("index"), DOCUMENTS)
    one = Server(index, api_keys=[KEY], allow_hosts=[NAME])
    yield one
    one.kill()


@contextmanager
def running(command: list[str], port: int, log: Path, **environment: str) -> Iterator[None]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, **environment})
        try:
            until = time.monotonic() + 20
            while time.monotonic() < until:
                assert process.poll() is None, log.read_text()
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture
def behind_nginx(server: Server, tmp_path: Path) -> Iterator[str]:
    if not Path(NGINX).is_file() or OPENSSL is None:
        pytest.skip("this machine has no nginx or no openssl")
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}",
         "-keyout", str(tmp_path / "privkey.pem"), "-out", str(tmp_path / "fullchain.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    port = free_port()
    content = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for before, after in (
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("127.0.0.1:8000", f"127.0.0.1:{server.port}"),
        ("/etc/ssl/mar/", f"{tmp_path}/"),
    ):
        assert before in content
        content = content.replace(before, after)
    (tmp_path / "mar.conf").write_text(content, encoding="utf-8")
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off;\npid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}include {tmp_path}/mar.conf;\n}}\n",
        encoding="utf-8",
    )
    command = [NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    with running(command, port, tmp_path / "log"):
        yield f"https://127.0.0.1:{port}"


@pytest.fixture
def behind_caddy(server: Server, tmp_path: Path) -> Iterator[str]:
    if CADDY is None:
        pytest.skip("this machine has no caddy")
    port = free_port()
    content = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    # Without a name of its own it would ask for a certificate.
    content = content.replace(f"{NAME} {{", f"http://{NAME}:{port} {{").replace(
        "127.0.0.1:8000", f"127.0.0.1:{server.port}"
    )
    content = content.replace("{\n\tservers {", "{\n\tadmin off\n\tservers {", 1)
    (tmp_path / "Caddyfile").write_text(content, encoding="utf-8")
    command = [CADDY, "run", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile")]
    with running(command, port, tmp_path / "log", HOME=str(tmp_path)):
        yield f"http://127.0.0.1:{port}"


def client(url: str) -> httpx.Client:
    return httpx.Client(
        base_url=url, verify=False, timeout=20, headers={"Host": NAME, "Authorization": f"Bearer {KEY}"}
    )


def refusal(asks: httpx.Client) -> int:
    """Status of a body that is too large; 502 as well for an answer that the proxy lost halfway.

    The server answers before it has the whole body and closes. A proxy that is still sending then may lose
    the answer, or the rest of it.
    """
    try:
        large = asks.post("/search", content=b"x" * (2 * 2**20), headers={"Content-Type": "application/json"})
    except httpx.RemoteProtocolError:
        return 502
    return large.status_code


def check(url: str, too_large: frozenset[int] = frozenset({413})) -> None:
    with client(url) as asks:
        answer = asks.post("/search", json={"query": DOCUMENTS[0], "k": 2})
        assert answer.status_code == 200, answer.text
        assert answer.json()["hits"][0]["id"] == "d0"
        assert asks.post("/search", json={"query": "x"}, headers={"Authorization": "no"}).status_code == 401
        vectors = asks.post("/v1/embeddings", json={"input": ["头疼"]})
        assert vectors.status_code == 200
        assert "<html" in asks.get("/").text
        assert asks.get("/healthz").status_code == 200
        assert asks.get("/info").json()["documents"] == len(DOCUMENTS)  # the page asks for it
        for path in ("/metrics", "/admin/reload", "/admin/x"):
            assert asks.get(path).status_code == 404
        assert asks.post("/admin/reload", json={}).status_code == 404
        assert refusal(asks) in too_large


def test_nginx_example_forwards_requests(behind_nginx: str) -> None:
    check(behind_nginx)


def test_nginx_limits_the_request_rate_of_an_address(behind_nginx: str) -> None:
    with client(behind_nginx) as asks:
        began = time.monotonic()
        statuses = [asks.post("/search", json={"query": "头疼"}).status_code for _ in range(60)]
        took = time.monotonic() - began
    assert set(statuses) == {200, 429}
    assert 21 <= statuses.count(200) <= 22 + 10 * took
    with client(behind_nginx) as asks:  # the page and what supervises it are not counted
        assert asks.get("/healthz").status_code == 200


def test_nginx_speaks_http_2(behind_nginx: str) -> None:
    curl = shutil.which("curl")
    if (
        curl is None
        or "HTTP2" not in subprocess.run([curl, "-V"], capture_output=True, text=True, check=True).stdout
    ):
        pytest.skip("this machine has no curl that speaks HTTP/2")
    done = subprocess.run(
        [curl, "-sk", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}",
         "-H", f"Host: {NAME}", "-H", f"Authorization: Bearer {KEY}", "--json", '{"query": "x"}',
         f"{behind_nginx}/search"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "2 200"


def test_caddy_example_forwards_requests(behind_caddy: str) -> None:
    check(behind_caddy, frozenset({413, 502}))


def test_limits_are_those_of_the_server() -> None:
    """Settings of the server that the examples mention have their default values."""
    from mar_st.serve import ServeSettings

    content = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    defaults = ServeSettings()
    for name, seconds in re.findall(r"(\d+)s;\s+# --([\w-]+)", content):
        assert getattr(defaults, seconds.replace("-", "_")) == float(name)
    assert "client_max_body_size 1m;     # --max-body" in content
    assert defaults.max_body == 2**20
    assert defaults.timeout < 15
