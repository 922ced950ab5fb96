"""The document side of a model behind the interface of query encoders."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.online.protocol import EncoderError
from mar_st.serve.engine.documents import DocumentEncoder, check_space, load_document_encoder
from mar_st.serve.settings import ServeError

TEXTS = ["头疼吃什么药", "感冒", ""]


def test_vectors_are_those_of_the_document_side(mar):
    encoder = DocumentEncoder(mar.eval(), "tiny")
    vectors = encoder.encode(TEXTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (3, encoder.dim))
    np.testing.assert_allclose(vectors, mar.encode_document(TEXTS), atol=1e-6)
    assert np.abs(vectors - mar.encode_query(TEXTS)).max() > 1e-2
    assert encoder.normalised
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_truncated_vectors_do_not_pass_as_normalised(mar):
    mar.truncate_dim = 8
    encoder = DocumentEncoder(mar.eval(), "tiny")
    norms = np.linalg.norm(encoder.encode(TEXTS), axis=1)
    assert (encoder.dim, encoder.normalised) == (8, False)
    assert norms.max() < 0.99


def test_tokens_are_counted_with_the_prompt_before_they_are_cut(mar):
    encoder = DocumentEncoder(mar.eval(), "tiny")
    bare = encoder.count_tokens(["头疼", "", "头" * 500])
    assert bare == [3, 1, 501]  # one more at the end
    assert encoder.count_tokens([]) == []
    expected = encoder.encode(["感冒头疼"])
    mar.prompts["document"] = "感冒"
    prompted = DocumentEncoder(mar, "tiny")
    assert prompted.count_tokens(["头疼", "", "头" * 500]) == [count + 2 for count in bare]
    np.testing.assert_allclose(prompted.encode(["头疼"]), expected, atol=1e-6)


def test_an_unknown_prompt_is_refused(mar):
    encoder = DocumentEncoder(mar.eval(), "tiny")
    for call in (encoder.encode, encoder.count_tokens):
        with pytest.raises(EncoderError, match=r"no prompt 'nix'; the model has .*document"):
            call(["头疼"], "nix")


def test_a_model_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(MarError, match="There is no folder"):
        load_document_encoder(str(tmp_path / "nix"))


@pytest.mark.parametrize(
    ("space", "dim", "refusal"),
    [
        ("a" * 64, 32, None),
        (None, 32, None),  # unknown spaces may be the same
        ("a" * 64, 64, None),  # the index has the first dimensions
        ("b" * 64, 32, r"another document space \(bbbbbbbbbbbb\) than the vectors of docs \(aaaaaaaaaaaa\)"),
        ("a" * 64, 16, "gives 16 dimensions, the index docs has 32"),
        (None, 31, "gives 31 dimensions, the index docs has 32"),
    ],
)
def test_documents_must_be_encoded_into_the_space_of_the_index(space, dim, refusal):
    index = SimpleNamespace(name="docs", space="a" * 64, dim=32)
    encoder = SimpleNamespace(space=space, dim=dim)
    if refusal is None:
        check_space(encoder, index)
        check_space(encoder, SimpleNamespace(name="docs", space=None, dim=32))
    else:
        with pytest.raises(ServeError, match=f"{refusal}.* Give --document-encoder"):
            check_space(encoder, index)
