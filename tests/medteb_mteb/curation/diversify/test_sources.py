from __future__ import annotations

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from mar_st import MAR
from mar_st.lookup import fit_lookup
from mar_st.model.family import add_query_encoder
from medteb_mteb.curation.diversify import Encoded
from medteb_mteb.curation.files.records import Text

TEXTS = [f"{word}{asked}" for word in ("肺炎", "感冒", "痛风") for asked in ("怎么治", "吃什么好", "会好吗")]


def test_a_lookup_encoder_gives_the_vectors_of_queries(tmp_path):
    document = MAR.from_pretrained("mar-mini", routes="document", device="cpu")
    width = document.get_embedding_dimension()
    vectors = np.random.default_rng(0).standard_normal((len(TEXTS), width))
    lookup = fit_lookup(TEXTS, vectors, ridge=0.1, show_progress=False)
    folder = tmp_path / "model"
    document.save_pretrained(str(folder))
    add_query_encoder(folder, [lookup], "query")
    source = Encoded(str(folder), "queries", tmp_path / "store", show_progress=False)
    encoded = source.vectors([Text(f"q{row}", text) for row, text in enumerate(TEXTS)])
    expected = SentenceTransformer(modules=[lookup, Normalize()], device="cpu").encode(TEXTS)
    np.testing.assert_allclose(encoded[np.arange(len(TEXTS))], expected, atol=1e-5)
