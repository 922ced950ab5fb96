"""The listing of an exported encoder: broken and hostile ones are one error, and variants are chosen."""

from __future__ import annotations

import pytest

from mar_st.online.encoders import load_query_encoder
from mar_st.online.listing import Listing
from mar_st.online.protocol import EncoderError


def test_what_is_written_is_read(graph_folder):
    listing = Listing.read(graph_folder.path)
    listing.write(graph_folder.path)
    assert Listing.read(graph_folder.path) == listing


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": "mar-export"}', '{"format": "other"}'])
def test_a_file_that_is_no_listing_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "export.json").write_text(content, encoding="utf-8")
    with pytest.raises(EncoderError, match=r"export\.json"):
        Listing.read(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dim", 0),
        ("dim", 10**9),
        ("dim", None),
        ("positions", -1),
        ("filler", 2**40),
        ("normalised", []),
        ("truncation", "middle"),
        ("prompts", {"query": 1}),
        ("files", {}),
        ("files__tokenizer.json__sha256", ...),
        ("files__../outside", {"bytes": 0, "sha256": ""}),
        ("model__identity", None),
        ("pooling", "sideways"),
        ("variants__onnx-fp32__files", [1]),
        ("of_a_later_version", 1),
    ],
)
def test_a_listing_with_a_wrong_setting_is_one_error(graph_folder, field, value):
    graph_folder.change(**{field: value})
    with pytest.raises(EncoderError, match=r"export\.json"):
        Listing.read(graph_folder.path)


@pytest.mark.parametrize("how", ["gone", "cut", "linked"])
def test_a_folder_with_a_damaged_file_is_refused_with_its_name(graph_folder, how, tmp_path):
    path = graph_folder.path / "tokenizer.json"
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.rename(tmp_path / "elsewhere")
    if how == "linked":
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EncoderError, match=r"tokenizer\.json"):
        Listing.read(graph_folder.path)


@pytest.mark.parametrize(
    ("chosen", "backend", "expected"),
    [
        ("native-int8", "auto", "native-int8"),
        ("native-int8", "onnx-fp32", "onnx-fp32"),
        ("onnx-fp32", "auto", "onnx-fp32"),
    ],
)
def test_a_back_end_chooses_its_variant(graph_folder, chosen, backend, expected):
    graph_folder.change(chosen=chosen)
    assert Listing.read(graph_folder.path).choose(backend).name == expected


def test_a_back_end_that_was_not_exported_is_refused_with_those_there_are(graph_folder):
    with pytest.raises(EncoderError, match="native-int8, onnx-fp32, onnx-int8"):
        Listing.read(graph_folder.path).choose("openvino")
    graph_folder.change(chosen="nix")
    with pytest.raises(EncoderError, match="no 'nix'"):
        Listing.read(graph_folder.path).choose("auto")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"similarity": "dot"}, True),
        ({"variants__onnx-fp32__report__p50_ms": 1.0, "chosen": "onnx-fp32"}, True),
        ({"prompts__query": "问："}, False),
        ({"max_length": 32}, False),
        ({"truncation": "left"}, False),
        ({"pooling": "mean"}, False),
        ({"model__identity": "1" * 64}, False),
    ],
)
def test_the_identity_changes_with_all_that_vectors_depend_on(graph_folder, change, same):
    before, after = [], []
    for identities in (before, after):
        listing = Listing.read(graph_folder.path)
        identities += [listing.identity(variant) for variant in listing.variants.values()]
        graph_folder.change(**change)
    assert len(set(before)) == 3
    assert (before[1] == after[1]) == same


def test_a_folder_that_was_not_exported_has_no_exported_back_end(tmp_path):
    with pytest.raises(EncoderError, match="mar export"):
        load_query_encoder(tmp_path, backend="openvino-int8")
