"""A small space: texts, and vectors that depend on their characters."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mar_st.lookup import fit_lookup

DIM = 32
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
    found = np.stack(rows)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return make_texts(400)


@pytest.fixture(scope="session")
def vectors(texts):
    return teach(texts)


@pytest.fixture(scope="session")
def fitted(texts, vectors):
    """Shared; tests that change it take a copy."""
    return fit_lookup(texts, vectors, show_progress=False)
