"""A small space: texts, and vectors that depend on their characters."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mar_st import MAR
from mar_st.encode.folder import write_vectors
from mar_st.lookup.fit import fit_lookup
from mar_st.model.digest import space_of
from mar_st.model.family import add_query_encoder
from mar_st.text.texts import join_document
from tests.conftest import write_jsonl
from tests.mar_st.conftest import make_config, make_tokenizer

DIM = 32
FAMILY = [("gte", "query"), ("qwen3", "document")]
ALPHABET = "头疼发热吃什么药好呢感冒咳嗽怎么办高血压医生你 abc12"


def make_texts(count: int, seed: int = 0) -> list[str]:
    drawn = random.Random(seed)
    return ["".join(drawn.choices(ALPHABET, k=drawn.randint(3, 12))) for _ in range(count)]


def teach(texts: list[str], dim: int = DIM) -> np.ndarray:
    """Unit vectors: a vector for each character and pair of characters, summed, around a common mean."""

    def vector(name: str) -> np.ndarray:
        return np.random.default_rng(list(name.encode())).standard_normal(dim)

    rows = [
        3 * vector("mean") + sum(vector(text[i : i + n]) for n in (1, 2) for i in range(len(text) - n + 1))
        for text in texts
    ]
    vectors = np.stack(rows)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return make_texts(400)


@pytest.fixture(scope="session")
def vectors(texts):
    return teach(texts)


@pytest.fixture(scope="session")
def fitted(texts, vectors):
    """Shared; tests that change it take a copy."""
    return fit_lookup(texts, vectors)


#: Documents of the small space; one of them would be markup if it were not escaped.
DOCUMENTS = [
    {"_id": "d1", "title": "头疼", "text": "头疼吃什么药"},
    {"_id": "d2", "title": "", "text": "<img src=x onerror=alert(1)> 感冒发热怎么办"},
    {"_id": "d3", "title": "<b>高血压</b>", "text": "高血压吃什么\u2028你好 😀"},
    {"_id": "d4", "title": "", "text": "咳嗽感冒"},
]


@pytest.fixture(scope="session")
def family(fitted, tmp_path_factory):
    """A MAR with the lookup encoder beside its own query encoder, a corpus, and vectors of it."""
    folder = tmp_path_factory.mktemp("family")
    sources = [(make_config(kind), make_tokenizer(role)) for kind, role in FAMILY]
    mar = MAR.from_encoders(query=sources[0], document=sources[1], dim=DIM, device="cpu")
    mar.save_pretrained(str(folder / "mar"))
    add_query_encoder(folder / "mar", [fitted], "query-lookup")
    write_jsonl(folder / "corpus.jsonl", DOCUMENTS)
    texts = [join_document(row) for row in DOCUMENTS]
    ids = [row["_id"] for row in DOCUMENTS]
    write_vectors(folder / "vectors", ids, teach(texts), texts=texts, space=space_of(folder / "mar"))
    return folder
