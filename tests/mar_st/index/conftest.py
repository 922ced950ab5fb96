"""A small library of documents whose vectors form clusters, like those of real texts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import faiss
import numpy as np
import pytest

from mar_st.encode.folder import VectorFolder, write_vectors
from tests.conftest import write_jsonl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DEPARTMENTS = ("心内科", "儿科", "外科", "皮肤科")
WORDS = ("高血压", "糖尿病", "感冒", "骨折", "湿疹", "哮喘", "失眠", "胃炎", "肺炎", "贫血")


@dataclass
class Library:
    """Documents, their vectors and queries."""

    folder: Path
    corpus: Path
    entries: list[dict[str, Any]]
    vectors: np.ndarray
    queries: np.ndarray

    @property
    def open(self) -> VectorFolder:
        return VectorFolder.open(self.folder)

    def best(self, k: int, passes: Any = None) -> tuple[list[list[str]], np.ndarray]:
        """Brute force over the documents that pass."""
        rows = [row for row, entry in enumerate(self.entries) if passes is None or passes(entry)]
        scores = self.queries @ self.vectors[rows].T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best_scores = np.full((len(self.queries), k), -np.inf, dtype=np.float32)
        best_scores[:, : order.shape[1]] = np.take_along_axis(scores, order, 1)
        return [[self.entries[rows[place]]["_id"] for place in row] for row in order], best_scores


def entry(number: int) -> dict[str, Any]:
    one: dict[str, Any] = {
        "_id": f"d{number}",
        "title": f"{WORDS[number % 10]}的第{number}条",
        "text": f"{WORDS[number % 10]}患者去{DEPARTMENTS[number % 4]}看病，"
        f"问{WORDS[number % 7]}怎么办，编号{number}。",
        "department": DEPARTMENTS[number % 4],
        "year": 2000 + number % 25,
        "metadata": {"score": number / 8, "checked": number % 3 == 0},
    }
    if number % 5 == 0:
        one["date"] = f"2024-{1 + number % 12:02d}-01"
    return one


def clustered(count: int, dim: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((30, dim)) + 0.5
    vectors = centres[generator.integers(0, 30, count)] + 0.6 * generator.standard_normal((count, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def make_library(
    folder: Path, numbers: Sequence[int] = range(1200), dim: int = 32, seed: int = 0, change: str = ""
) -> Library:
    """A corpus of some documents, `change` at the end of their texts, and its vectors."""
    entries = [entry(number) for number in numbers]
    for one in entries:
        one["text"] += change
    corpus = write_jsonl(folder / "corpus.jsonl", entries)
    vectors = clustered(len(entries), dim, seed)
    texts = [f"{one['title']}\n{one['text']}" for one in entries]
    write_vectors(folder / "vectors", [one["_id"] for one in entries], vectors, texts=texts, space="a" * 64)
    return Library(folder / "vectors", corpus, entries, vectors, clustered(20, dim, seed=7))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(autouse=True)
def one_faiss_thread():
    """Graphs are the same from build to build only when one thread links them."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture(scope="module")
def closed_channels():
    """Close the channels to Milvus: processes that other tests fork would hang in gRPC's threads."""
    yield
    from pymilvus.client.connection_manager import ConnectionManager

    ConnectionManager.get_instance().close_all()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Names of new collections in Milvus Lite, or on the server in MAR_TEST_MILVUS."""
    import pymilvus

    numbers, server = count(), os.environ.get("MAR_TEST_MILVUS")
    if server is None:
        from milvus_lite.server_manager import server_manager_instance

        path = tmp_path_factory.mktemp("milvus") / "index.db"
        yield lambda: f"milvus:{path}/test_{next(numbers)}"
        server_manager_instance.release_server(str(path))
        return
    made = []

    def name():
        made.append(f"test_{os.getpid()}_{next(numbers)}")
        return f"milvus:{server}/{made[-1]}"

    yield name
    client = pymilvus.MilvusClient(server)
    for collection in made:
        client.drop_collection(collection)
