"""Real servers in processes of their own, and an index for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.mar_st.serve.fakes import vector_of

ROOT = Path(__file__).parents[3]


def make_index(
    folder: Path, documents: list[str], prefix: str = "d", space: str | None = "fake-space"
) -> Path:
    from mar_st.encode import write_vectors
    from mar_st.index import build_index

    ids = [f"{prefix}{place}" for place in range(len(documents))]
    corpus = folder / "corpus.jsonl"
    rows = [
        {"_id": name, "title": f"标题{name}", "text": text, "department": "内科" if place % 2 else "外科"}
        for place, (name, text) in enumerate(zip(ids, documents, strict=True))
    ]
    corpus.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    vectors = np.stack([vector_of(text) for text in documents])
    write_vectors(folder / "vectors", ids, vectors, space=space)
    build_index(
        folder / "vectors",
        folder / "index",
        corpus=corpus,
        kind="exact",
        tokens="char-bigram",
        progress=False,
    )
    return folder / "index"


class Server:
    """A server process; `url` is where it listens."""

    def __init__(self, index: Path, *, seconds: float = 0.0, per_text: float = 0.0, **settings: Any) -> None:
        self.folder = index.parent
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mar_st.serve.fake_server", str(index), json.dumps(settings),
             str(seconds), str(per_text)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1",
                 "TMPDIR": str(self.folder)},
        )  # fmt: skip
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), f"{line}{''.join(self.log)}"
        self.url = line.split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def _read(self) -> None:
        self.log.extend(self.process.stderr)

    def search(self, query: str, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/search", json={"query": query, **options}, timeout=20)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def stop(self, seconds: float = 20) -> int:
        self.signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
