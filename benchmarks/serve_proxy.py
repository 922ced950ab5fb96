"""nginx in front of uvicorn's own connections, for comparison.

    python benchmarks/serve.py --app mar,connections,proxy-connections,proxy-stock
    python benchmarks/limits.py --app proxy-connections

`proxy-connections` and `proxy-stock` are `connections` and `stock` of serve_stock.py behind nginx, with the
limits of `deploy/nginx.conf`, but without TLS and without limits per address, because the load generator has
one address. `limited-connections` has these limits, too; it is for `limits.py`, whose searching clients have
16 addresses and whose attacker has one. nginx has one worker process, and does not limit how many requests a
connection has, because the clients keep their connections. Needs `nginx` (Debian: `nginx-light`).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

#: Applications behind nginx, by name.
BEHIND = {
    "proxy-connections": "connections",
    "proxy-stock": "stock",
    "limited-connections": "connections",
}

#: The limits per address of `deploy/nginx.conf`.
PER_ADDRESS = """
    limit_req_zone $binary_remote_addr zone=requests:10m rate=10r/s;
    limit_conn_zone $binary_remote_addr zone=connections:10m;
    limit_req_status 429;
    limit_conn_status 429;
    limit_conn connections 20;
    limit_req zone=requests burst=20 nodelay;
"""

CONFIGURATION = """
daemon off;
worker_processes 1;
worker_rlimit_nofile {files};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections {connections}; multi_accept on; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 1m;
    client_header_timeout 10s;
    client_body_timeout 10s;
    send_timeout 10s;
    keepalive_requests 1000000;
    {per_address}
    upstream mar {{
        server 127.0.0.1:{behind};
        keepalive 64;
        keepalive_timeout 30s;
        keepalive_requests 1000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://mar;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_connect_timeout 2s;
            proxy_read_timeout 15s;
            proxy_next_upstream off;
        }}
    }}
}}
"""


def free_port() -> int:
    """Return a port of the loopback address that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def main() -> None:
    """Serve an index behind nginx until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("index")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--app", choices=BEHIND, required=True)
    parser.add_argument("--timeout", default="10")
    given = parser.parse_args()
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
    if nginx is None:
        parser.error("nginx is not installed; on Debian: apt-get install nginx-light")
    stopped = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopped.set())
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="serve-proxy-"))
        behind = start_stock(given, stack)
        per_address = PER_ADDRESS if given.app.startswith("limited") else ""
        port = start_nginx(nginx, Path(folder), behind, per_address, stack)
        print(f"listening on http://127.0.0.1:{port}", flush=True)
        stopped.wait()


def start_stock(given: argparse.Namespace, stack: ExitStack) -> int:
    """Start the application; return its port."""
    command = [sys.executable, str(Path(__file__).with_name("serve_stock.py")), given.index]
    command += ["--encoder", given.encoder, "--app", BEHIND[given.app], "--timeout", given.timeout]
    command += ["--max-connections", "16384"]  # nginx limits them
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stack.callback(stop, server)
    line = server.stdout.readline() if server.stdout else ""
    if not line.startswith("listening on"):
        raise SystemExit(f"the server behind nginx did not start: {line}")
    return int(line.rsplit(":", 1)[1])


def start_nginx(nginx: str, folder: Path, behind: int, per_address: str, stack: ExitStack) -> int:
    """Start nginx before a port; return its own port."""
    port, files = free_port(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    path = folder / "nginx.conf"
    path.write_text(
        CONFIGURATION.format(
            folder=folder,
            behind=behind,
            port=port,
            files=files,
            connections=min(16_384, files - 64),
            per_address=per_address,
        ),
        encoding="utf-8",
    )
    folder.chmod(0o755)  # the worker process has another user
    stack.callback(stop, subprocess.Popen([nginx, "-c", str(path), "-e", f"{folder}/error.log"]))
    await_port(port)
    return port


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process."""
    process.terminate()
    process.wait(60)


def await_port(port: int, tries: int = 100) -> None:
    """Wait until something listens on a port of the loopback address, at most ten seconds."""
    for _ in range(tries):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("nginx did not start")


if __name__ == "__main__":
    main()
