"""The example of nginx in front of a real server; ports, names and certificates are replaced."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from ipaddress import ip_address, ip_network
from pathlib import Path

import httpx
import pytest
import yaml

from mar_st.serve import ServeSettings
from mar_st.serve.guard import MAX_BODY
from mar_st.serve.metrics import Metrics
from tests.mar_st.serve.fakes import DOCUMENTS, KEY, Server, make_index

DEPLOY = Path(__file__).parents[2] / "deploy"
NGINX, OPENSSL = shutil.which("nginx", path="/usr/sbin:/usr/bin"), shutil.which("openssl")
NAME = "search.example.org"


@pytest.fixture
def asks(tmp_path, monkeypatch):
    """A client of the server behind nginx."""
    if NGINX is None or OPENSSL is None:
        pytest.skip("this machine has no nginx or no openssl")
    monkeypatch.setenv("MAR_API_KEYS", KEY)
    server = Server(make_index(tmp_path / "index"))
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}",
         "-keyout", str(tmp_path / "privkey.pem"), "-out", str(tmp_path / "fullchain.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    content = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for before, after in (
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("server 127.0.0.1:8000", f"server {server.url.removeprefix('http://')}"),
        ("/etc/ssl/mar/", f"{tmp_path}/"),
    ):
        assert before in content
        content = content.replace(before, after)
    (tmp_path / "mar.conf").write_text(content, encoding="utf-8")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in kinds)
    (tmp_path / "nginx.conf").write_text(
        f"daemon off;\npid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}include {tmp_path}/mar.conf;\n}}\n",
        encoding="utf-8",
    )
    nginx = subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    headers = {"Host": NAME, "Authorization": f"Bearer {KEY}"}
    try:
        with httpx.Client(
            base_url=f"https://127.0.0.1:{port}", verify=False, headers=headers, timeout=20
        ) as client:
            for _ in range(100):
                try:
                    client.get("/healthz")
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
            yield client
    finally:
        nginx.terminate()
        nginx.wait(20)
        server.kill()


@pytest.mark.slow
def test_nginx_forwards_requests_and_limits_their_rate(asks):
    answer = asks.post("/search", json={"query": DOCUMENTS[0], "k": 2})
    assert answer.json()["hits"][0]["id"] == "d0"
    assert asks.post("/search", json={"query": "x"}, headers={"Authorization": "no"}).status_code == 401
    assert "<html" in asks.get("/").text
    assert asks.get("/info").json()["documents"] == len(DOCUMENTS)
    for path in ("/metrics", "/admin/reload"):
        assert asks.get(path).status_code == 404
    large = asks.post("/search", content=b"x" * (5 << 20), headers={"Content-Type": "application/json"})
    assert large.status_code == 413
    statuses = [asks.post("/search", json={"query": "头疼"}).status_code for _ in range(60)]
    assert set(statuses) == {200, 429}
    assert asks.get("/healthz").status_code == 200


def test_the_examples_fit_the_server():
    content = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert f"client_max_body_size {MAX_BODY >> 20}m;" in content
    assert ServeSettings().timeout < 15
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    service = (DEPLOY / "mar.service").read_text(encoding="utf-8")
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    config = compose["networks"]["default"]["ipam"]["config"][0]
    address = ip_address(compose["services"]["search"]["networks"]["default"]["ipv4_address"])
    assert address in ip_network(config["subnet"])
    assert address not in ip_network(config["ip_range"])  # from which Docker takes the addresses of others
    assert str(address) in compose["services"]["nginx"]["command"][-1]
    commands = [compose["services"]["search"]["command"], *re.findall(r"mar.*serve.*", service + dockerfile)]
    known = {f"--{name.replace('_', '-')}" for name in ServeSettings.model_fields}
    assert {
        option for line in commands for option in re.findall(r"--(?!publish|env|volume)[a-z-]+", line)
    } <= known


def test_the_board_shows_metrics_that_the_server_has():
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    shown = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bmar_[a-z_]+", target["expr"])
    }
    metrics = Metrics()
    for stage in ("encode", "search"):
        metrics.observer(stage)
        metrics.waiting.labels(stage)
    metrics.answered("/", 200, 0.1)
    metrics.errors.labels("x").inc()
    page = metrics.page().decode()
    assert shown
    assert all(f"\n{name}" in page for name in shown)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_accepts_the_unit(tmp_path):
    unit = (DEPLOY / "mar.service").read_text(encoding="utf-8").replace("/opt/mar/bin/mar", "/bin/true")
    (tmp_path / "mar.service").write_text(unit, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "mar.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "mar.service" not in done.stderr, done.stderr
