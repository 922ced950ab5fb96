"""The offline encoder on a GPU gives the vectors of sentence-transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from tests.conftest import write_jsonl
from tests.mar_st.gpu_helpers import texts, write_sides

pytestmark = pytest.mark.gpu

#: Largest distance of a cosine from 1, by precision.
APART = {"fp32": 1e-3, "bf16": 1e-2}
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def check(actual, expected, precision):
    actual, expected = (np.asarray(part, dtype=np.float64) for part in (actual, expected))
    assert actual.shape == expected.shape
    norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    assert np.abs(1 - (actual * expected).sum(axis=1) / norms).max() < APART[precision]
    assert np.ptp(expected, axis=0).max() > 0.02  # texts differ


@pytest.mark.parametrize("precision", APART)
def test_mar_encode_writes_the_vectors_of_encode_document(gpu, tmp_path, precision):
    pytest.importorskip("filelock", reason="mar encode needs filelock")
    from mar_st.encode.encoding import encode_corpus
    from mar_st.encode.folder import VectorFolder
    from mar_st.encode.settings import EncodeSettings

    sides = write_sides(tmp_path / "sides", torch.float32)
    mar = MAR.from_encoders(**{side: str(path) for side, path in sides.items()}, device="cpu")
    mar.save_pretrained(str(tmp_path / "mar"))
    rows = [{"_id": str(i), "text": text} for i, text in enumerate(texts())]
    corpus, settings = write_jsonl(tmp_path / "corpus.jsonl", rows), EncodeSettings(dtype=DTYPES[precision])
    encode_corpus(tmp_path / "mar", corpus, tmp_path / "vectors", settings, shard=32, show_progress=False)
    folder = VectorFolder.open(tmp_path / "vectors")
    assert folder.ids.to_pylist() == [str(i) for i in range(len(texts()))]
    model = SentenceTransformer(str(tmp_path / "mar"), device=str(gpu))
    check(folder[:], model.encode_document(texts()), precision)
