"""A fake encoder with exact results, an index of its vectors, and servers in processes of their own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from pathlib import Path

import httpx
import numpy as np

ROOT = Path(__file__).parents[3]
DIM = 16
DOCUMENTS = ["头疼吃布洛芬", "感冒多喝水", "高血压少吃盐", "糖尿病控制血糖", "失眠早点睡", "咳嗽看呼吸科"]
KEY = "a-key-of-enough-characters"


def vector_of(text):
    digest = hashlib.sha256(text.encode()).digest()
    vector = np.frombuffer(digest[:DIM], dtype=np.uint8).astype(np.float32) - 127.5
    return vector / np.linalg.norm(vector)


def nfkc(text):
    return unicodedata.normalize("NFKC", text)


class FakeEncoder:
    """Vectors by digest; one token per character after NFKC, and two special ones.

    It can be held back by `gate`.
    """

    dim, identity, space, normalised, max_length = DIM, "fake", "fake-space", True, 64
    prompts, query = {}, "query-fake"

    def __init__(self, per_text=0.0):
        self.per_text, self.batches, self.counted = per_text, [], 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def encode(self, texts, prompt_name=None):
        self.batches.append(list(texts))
        self.entered.set()
        assert self.gate.wait(20)
        time.sleep(self.per_text * len(texts))
        if "炸" in texts:
            raise KeyError("秘密 " + "".join(texts))
        return np.stack([vector_of(nfkc(text)[: self.max_length - 2]) for text in texts])

    def count_tokens(self, texts, prompt_name=None):
        self.counted = max(self.counted, *map(len, texts))
        return [len(nfkc(text)) + 2 for text in texts]


def make_index(folder, documents=DOCUMENTS, prefix="d", titles=True):
    """Build an index of texts encoded by the fake encoder, with words and one metadata field."""
    from mar_st.encode.folder import write_vectors
    from mar_st.index.build import build_index
    from tests.conftest import write_jsonl

    folder.mkdir(exist_ok=True)
    ids = [f"{prefix}{place}" for place in range(len(documents))]
    rows = [
        {
            "_id": name,
            "title": f"标题{name}" if titles else "",
            "text": text,
            "department": "内科" if place % 2 else "外科",
        }
        for place, (name, text) in enumerate(zip(ids, documents, strict=True))
    ]
    corpus = write_jsonl(folder / "corpus.jsonl", rows)
    vectors = np.stack([vector_of(text) for text in documents])
    write_vectors(folder / "vectors", ids, vectors, space="fake-space")
    build_index(folder / "vectors", folder / "index", corpus=corpus, kind="exact", progress=False)
    return folder / "index"


def start(index, stdout=subprocess.PIPE, per_text=0.0, **settings):
    """Start `mar serve` with the fake encoder."""
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps({"index": str(index), **settings}), str(per_text)],
        cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


class Server:
    """`mar serve` with the fake encoder in a process of its own; `url` is where it listens."""

    def __init__(self, index, per_text=0.0, **settings):
        self.process = start(index, per_text=per_text, **settings)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise AssertionError(line + self.process.stderr.read())
        self.url = line.split()[-1]

    def search(self, query, **options):
        return httpx.post(f"{self.url}/search", json={"query": query, **options}, timeout=20)

    def stop(self):
        """Stop it and return its exit code and what it logged."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=20)
        return self.process.returncode, log

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


if __name__ == "__main__":
    from mar_st.index import searcher
    from mar_st.serve import ServeSettings, run

    encoder = FakeEncoder(float(sys.argv[2]))
    searcher.load_query_encoder = lambda *_, **__: encoder
    run(
        ServeSettings.model_validate(
            {"port": 0, "name": "fake", "encoder": "fake", **json.loads(sys.argv[1])}
        )
    )
