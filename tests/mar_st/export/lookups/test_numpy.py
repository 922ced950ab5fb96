"""Tests of the format `numpy`: the table alone."""

from __future__ import annotations

import pytest

from mar_st.export import ExportError
from mar_st.export.lookup import export_lookup
from mar_st.export.lookups.numpy import NumpyFormat
from tests.mar_st.lookup.conftest import family, fitted, texts, vectors  # noqa: F401 -- fixtures


@pytest.mark.parametrize(
    ("folder", "documents"),
    [("vectors", "corpus.jsonl"), ("vectors", None), (None, "corpus.jsonl")],
)
def test_documents_and_vectors_belong_to_the_page(folder, documents):
    with pytest.raises(ExportError, match="go only into a page: give --format lookup-json"):
        NumpyFormat.check("int8", folder, documents)


def test_the_folder_holds_the_dictionary_and_the_table_alone(family, tmp_path):  # noqa: F811
    listing = export_lookup(family / "mar", tmp_path / "out", weight_format="fp16", query="query-lookup")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*listing.files, "export.json"}
    assert set(listing.files) == {"features.json", "lookup.bin"}
    assert listing.documents == 0
