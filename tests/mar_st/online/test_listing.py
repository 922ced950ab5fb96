"""The listing of an exported encoder: broken and hostile ones are one error, and variants are chosen."""

from __future__ import annotations

import pytest

from mar_st.online.listing import Listing, format_of
from mar_st.online.protocol import EncoderError


def test_what_is_written_is_read(graph_folder, tmp_path):
    listing = Listing.read(graph_folder.path)
    listing.write(graph_folder.path)
    assert Listing.read(graph_folder.path) == listing
    assert format_of(graph_folder.path) == "mar-export"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "has no export.json"),
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ("null", "cannot be read"),
        ('{"format": "mar-export"}', "cannot be read"),
        ('{"format": "mar-export", "version": 2}', "not of version 1"),
        ('{"format": "mar-lookup", "version": 1}', "not of version 1"),
        ('{"format": "mar-export", "version": 1}', "cannot be read"),
    ],
)
def test_a_file_that_is_no_listing_is_refused(tmp_path, content, match):
    if content is not None:
        (tmp_path / "export.json").write_text(content, encoding="utf-8")
    with pytest.raises(EncoderError, match=match):
        Listing.read(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dim", 0),
        ("dim", True),
        ("dim", "8"),
        ("dim", 10**9),
        ("dim", None),
        ("dim", 2**32 + 32),
        ("max_length", 0),
        ("max_length", 1.5),
        ("positions", -1),
        ("positions", 2**40),
        ("filler", -1),
        ("filler", True),
        ("normalised", 1),
        ("truncation", "middle"),
        ("chosen", "onnx-bf16"),
        ("prompts", {"query": 1}),
        ("prompts", 3),
        ("prompts", ["query"]),
        ("files", []),
        ("files", {}),
        ("files__tokenizer.json__bytes", "13"),
        ("files__tokenizer.json__sha256", ...),
        ("model", {}),
        ("model__identity", None),
        ("model__query", 5),
        ("space", 5),
        ("similarity", []),
        ("pooling", None),
        ("pooling", {}),
        ("pooling", "cls"),
        ("pooling__mode", 0),
        ("pooling__include_prompt", ...),
        ("pooling__include_prompt", "no"),
        ("pooling", {"mode": "mean", "include_prompt": False}),
        ("variants", {}),
        ("variants", []),
        ("variants__onnx-fp32", []),
        ("variants__onnx-fp32__runtime", ["onnx"]),
        ("variants__onnx-fp32__graph", None),
        ("variants__onnx-fp32__files", "onnx-fp32.onnx"),
        ("variants__onnx-fp32__files", [1]),
        ("variants__onnx-fp32__options", []),
        ("variants__onnx-fp32__table", "int4"),
        ("variants__onnx-fp32__report__p50_ms", "fast"),
        ("variants__onnx-fp32__report__p50_ms", float("nan")),
        ("of_a_later_version", 1),
    ],
)
def test_a_listing_with_a_wrong_setting_is_one_error(graph_folder, field, value):
    graph_folder.change(**{field: value})
    with pytest.raises(
        EncoderError, match=r"export\.json cannot be read \(.+\); export the model again"
    ) as error:
        Listing.read(graph_folder.path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["onnx-fp32.onnx", "tokenizer.json", "embeddings.float32.npy"])
@pytest.mark.parametrize("how", ["gone", "cut", "changed", "not listed"])
def test_a_folder_with_a_damaged_file_is_refused_with_its_name(graph_folder, name, how):
    path = graph_folder.path / name
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "changed":
        path.write_bytes(path.read_bytes().swapcase())
    else:
        graph_folder.change(
            files={other: entry for other, entry in graph_folder.files().items() if other != name}
        )
    with pytest.raises(EncoderError, match=name):
        Listing.read(graph_folder.path)


@pytest.mark.parametrize("where", ["files", "graph", "variant", "table"])
def test_a_listing_that_names_files_elsewhere_is_refused(graph_folder, where):
    name = "x/../../ESCAPED"
    (graph_folder.path.parent / "ESCAPED").write_text("x", encoding="utf-8")
    if where == "files":
        graph_folder.change(files={**graph_folder.files(), name: {"bytes": 1, "sha256": "0" * 64}})
    else:
        field = {"graph": "graph", "variant": "files", "table": "table"}[where]
        graph_folder.change(**{f"variants__onnx-fp32__{field}": [name] if where == "variant" else name})
    with pytest.raises(EncoderError, match="ESCAPED"):
        Listing.read(graph_folder.path)


def test_a_linked_file_is_not_read(graph_folder):
    path = graph_folder.path / "tokenizer.json"
    path.rename(graph_folder.path.parent / "secret")
    path.symlink_to(graph_folder.path.parent / "secret")
    with pytest.raises(EncoderError, match="symbolic link out of"):
        Listing.read(graph_folder.path)


def test_a_changed_byte_between_samples_is_found_by_verifying(graph_folder):
    content = bytearray(1_000_000)
    graph_folder.replace("onnx-fp32.onnx", bytes(content))
    Listing.read(graph_folder.path).verify(graph_folder.path)
    content[70_000] = 1
    (graph_folder.path / "onnx-fp32.onnx").write_bytes(content)
    listing = Listing.read(graph_folder.path)
    with pytest.raises(EncoderError, match=r"onnx-fp32\.onnx holds other bytes than were written"):
        listing.verify(graph_folder.path)


@pytest.mark.parametrize(
    ("chosen", "backend", "expected"),
    [
        ("native-int8", "auto", "native-int8"),
        ("native-int8", "onnx-fp32", "onnx-fp32"),
        ("native-int8", "onnx", "onnx-int8"),  # the faster one
        ("onnx-fp32", "onnx", "onnx-fp32"),  # the chosen one
    ],
)
def test_a_back_end_chooses_its_variant(graph_folder, chosen, backend, expected):
    graph_folder.change(chosen=chosen)
    assert Listing.read(graph_folder.path).choose(backend).name == expected


def test_a_back_end_that_was_not_exported_is_refused_with_those_there_are(graph_folder):
    with pytest.raises(EncoderError, match="no 'openvino'; it has native-int8, onnx-fp32, onnx-int8"):
        Listing.read(graph_folder.path).choose("openvino")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"machine": {"cores": 4}, "similarity": "dot"}, True),
        ({"variants__onnx-fp32__report__p50_ms": 1.0, "chosen": "onnx-fp32"}, True),
        ({"prompts__query": "问："}, False),
        ({"max_length": 32}, False),
        ({"truncation": "left"}, False),
        ({"pooling__mode": "mean"}, False),
        ({"model__identity": "1" * 64}, False),
        ({"variants__onnx-fp32__options": {"threads": 1}}, False),
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


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b'{"format": "mar-lookup"}', "mar-lookup"), (b"{}", None), (b"[]", None), (b"\xff", None), (b"", None)],
)
def test_the_format_of_a_broken_listing_is_unknown(tmp_path, content, expected):
    (tmp_path / "export.json").write_bytes(content)
    assert format_of(tmp_path) == expected
