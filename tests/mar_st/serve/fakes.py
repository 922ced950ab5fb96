"""A fake encoder and a fake searcher with simple, exact results."""

from __future__ import annotations

import hashlib
import time
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.index import Hits, Searcher
from mar_st.index.documents import Stored

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

DIM = 16
FIELDS = {"department": "string", "year": "integer"}


def vector_of(text: str) -> np.ndarray:
    digest = hashlib.sha256(text.encode()).digest()
    vector = np.frombuffer(digest[:DIM], dtype=np.uint8).astype(np.float32) - 127.5
    return vector / np.linalg.norm(vector)


class FakeEncoder:
    """Vectors by digest; one token per character and two special ones."""

    dim, identity, space, normalised, max_length = DIM, "fake", "fake-space", True, 64
    prompts: Mapping[str, str] = MappingProxyType({})

    def __init__(self, seconds: float = 0.0, per_text: float = 0.0) -> None:
        self.seconds, self.per_text = seconds, per_text
        self.batches: list[int] = []
        self.gate: threading.Event | None = None

    def encode(self, texts: Any, prompt_name: str | None = None) -> np.ndarray:
        self.batches.append(len(texts))
        if self.gate is not None:
            self.gate.wait(20)
        if "炸" in texts:
            raise ValueError("秘密 " + "".join(texts))
        time.sleep(self.seconds + self.per_text * len(texts))
        return np.stack([vector_of(text[: self.max_length - 2]) for text in texts])

    def count_tokens(self, texts: Any, prompt_name: str | None = None) -> list[int]:
        return [len(text) + 2 for text in texts]


class FakeDocumentEncoder(FakeEncoder):
    """Vectors of documents, the negatives of those of queries."""

    def encode(self, texts: Any, prompt_name: str | None = None) -> np.ndarray:
        return -super().encode(texts)


class FakeHit:
    def __init__(self, **content: Any) -> None:
        self.content = content

    def to_json(self) -> dict[str, Any]:
        return self.content


class FakeSearcher:
    """Exact search over the vectors of the documents' texts."""

    def __init__(
        self, documents: list[str], encoder: Any = None, *, words: bool = True, rerank: bool = False
    ):
        self.texts, self.encoder = documents, encoder
        self.vectors = np.stack([vector_of(text) for text in documents])
        self.index = _Index(len(documents), words)
        self.effort: dict[str, int] = {}
        self.calibrated: dict[str, float] | None = None
        self.reranker = object() if rerank else None
        self.calls: list[dict[str, Any]] = []

    def search_vectors(
        self, vectors, texts=None, k=10, *, where=None, hybrid=False, rerank=None, deadline=None
    ):
        call = {"n": len(vectors), "k": k, "where": where, "hybrid": hybrid, "rerank": rerank}
        self.calls.append({**call, "texts": texts, "deadline": deadline})
        if texts is not None and "坏" in texts:
            raise KeyError(texts)
        if k == 13:
            raise MarError("13 brings bad luck.")
        scores = [self.vectors @ vector for vector in vectors]  # one by one: sums do not depend on the batch
        hits = []
        for row in scores:
            order = np.argsort(-row, kind="stable")[:k]
            hits.append(Hits([
                FakeHit(id=f"d{place}", score=float(row[place]), rank=rank, title=f"标题{place}",
                        snippet=self.texts[place], metadata={"department": "内科"},
                        legs={"dense": {"rank": rank, "score": float(row[place])}})
                for rank, place in enumerate(order, 1)
            ], nearest=float(row.max())))  # fmt: skip
        return hits

    match = Searcher.match

    def search(self, queries, k=10, **options):
        return self.search_vectors(np.stack([vector_of(text) for text in queries]), queries, k, **options)


class _Index(SimpleNamespace):
    def __init__(self, count: int, words: bool) -> None:
        super().__init__(
            name="fake", space="fake-space", dim=DIM, fields=FIELDS, has_words=words, has_texts=True
        )
        self.count = count

    def find_documents(self, names: Any) -> dict[str, Stored]:
        return {
            name: Stored(name, f"标题{name[1:]}", "全文", {"year": 2020})
            for name in names
            if name[1:].isdigit() and int(name[1:]) < self.count
        }

    def find_words(self, texts: Any, k: int, where: Any) -> None:
        self.warmed = list(texts)

    def __len__(self) -> int:
        return self.count


DOCUMENTS = ["头疼吃布洛芬", "感冒多喝水", "高血压少吃盐", "糖尿病控制血糖", "失眠早点睡", "咳嗽看呼吸科"]


def hits_of(query, k=10):
    """Hits of the search of fakes for a query, as JSON values."""
    return [hit.to_json() for hit in FakeSearcher(DOCUMENTS).search([query], k)[0]]
