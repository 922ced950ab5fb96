"""Loading a query encoder: the kind of folder decides what opens it."""

from __future__ import annotations

import pytest

from mar_st.errors import MarError
from mar_st.online.load import load_query_encoder
from mar_st.online.lookup import NumpyLookupEncoder
from mar_st.online.protocol import EncoderError, encoder_name


@pytest.mark.parametrize("backend", ["auto", "numpy"])
@pytest.mark.parametrize("query", [None, "query-lookup"])
def test_an_exported_lookup_encoder_is_opened(lookup_folder, backend, query):
    encoder = load_query_encoder(lookup_folder.path, backend=backend, query=query)
    assert isinstance(encoder, NumpyLookupEncoder)
    assert encoder_name(encoder) == "query-lookup"


@pytest.mark.parametrize("backend", ["torch", "onnx", "native-int8", ""])
def test_an_exported_lookup_encoder_has_no_other_back_end(lookup_folder, backend):
    with pytest.raises(EncoderError, match=f"its backend is 'numpy', not {backend!r}"):
        load_query_encoder(lookup_folder.path, backend=backend)


def test_an_exported_encoder_that_does_not_know_its_name_has_no_other_one(lookup_folder):
    lookup_folder.change(model__query=...)
    assert encoder_name(load_query_encoder(lookup_folder.path)) is None
    with pytest.raises(
        EncoderError, match="holds only one query encoder, not 'query-small'; export that one"
    ):
        load_query_encoder(lookup_folder.path, query="query-small")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"format": 3}', b"\xff", b'{"format": "mar-lookup"}']
)
def test_a_folder_with_a_broken_listing_is_refused(lookup_folder, content):
    lookup_folder.listing.write_bytes(content)
    with pytest.raises(EncoderError, match="export the model again"):
        load_query_encoder(lookup_folder.path)


@pytest.mark.parametrize("backend", ["numpy", "onnx", "openvino-int8"])
def test_a_folder_that_was_not_exported_has_no_exported_back_end(tmp_path, backend):
    with pytest.raises(EncoderError, match=f"backend='{backend}' cannot load it. Write one with `mar export"):
        load_query_encoder(tmp_path, backend=backend)


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(MarError, match="There is no folder"):
        load_query_encoder(tmp_path / "nix")
