"""What a saved model folder says about itself without being loaded."""

from __future__ import annotations

import json

import mteb
import pytest

from medteb_mteb.models.local import describe_folder, folder_revision, widths


def test_a_folder_is_described_without_loading_it(mar, saved):
    told = describe_folder(saved)
    parameters = sum(p.numel() for p in mar.parameters())
    assert told["n_parameters"] == parameters
    words = [mar.route_modules(route)[0].auto_model.get_input_embeddings() for route in mar.routes]
    assert told["n_embedding_parameters"] == sum(embedding.weight.numel() for embedding in words)
    assert told["embed_dim"] == widths(16)
    assert told["max_tokens"] == min(
        module.max_seq_length for module in (mar.route_modules(r)[0] for r in mar.routes)
    )
    assert told["similarity_fn_name"] == "cosine"


CARD = """---
license: MIT
language: [zh, en]
release_date: 2026-01-02
training_code: mar train mine
---
"""


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (CARD, ("mit", ["zho-Hans", "eng-Latn"], "2026-01-02", "mar train mine")),
        (
            "---\nlicense: our own\nlanguage: 5\nrelease_date: soon\n---\n",
            ("not specified", None, None, None),
        ),
        ("---\n[broken\n---\n", (None, None, None, None)),
    ],
)
def test_the_card_adds_metadata_that_weights_do_not_have(saved, card, expected):
    (saved / "README.md").write_text(card)
    told = describe_folder(saved)
    fields = ("license", "languages", "release_date", "public_training_code")
    assert tuple(told[field] for field in fields) == expected
    meta = mteb.get_model_meta(str(saved))
    assert (meta.license, meta.languages) == expected[:2]


def test_the_revision_follows_the_weights_and_not_the_card(saved):
    before = folder_revision(saved)
    (saved / "README.md").write_text("corrected")
    assert folder_revision(saved) == before
    weights = next(saved.rglob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert folder_revision(saved) != before


def test_the_revision_of_a_large_file_follows_its_size_and_both_ends(tmp_path):
    path, size = tmp_path / "model.safetensors", (16 << 20) + 1
    revisions = set()
    for offset, changed in ((0, b"\0"), (0, b"\1"), (size - 1, b"\1"), (size, b"\0")):
        with path.open("wb") as stream:
            stream.truncate(size)
            stream.seek(offset)
            stream.write(changed)
        revisions.add(folder_revision(tmp_path))
    assert len(revisions) == 4


def test_the_revision_follows_names_and_ignores_hidden_files(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    before = folder_revision(tmp_path)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "lock").write_text("1")
    assert folder_revision(tmp_path) == before
    (tmp_path / "config.json").rename(tmp_path / "other.json")
    assert folder_revision(tmp_path) != before


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0[]", b"\x05\0\0\0\0\0\0\0{bad}"])
def test_broken_weights_have_no_number_of_parameters(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    told = describe_folder(tmp_path)
    assert told["n_parameters"] is told["n_embedding_parameters"] is told["embed_dim"] is None


def test_a_tokenizer_without_a_limit_does_not_hide_that_of_another(tmp_path):
    for name, limit in (("query", 10**30), ("document", 512)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
    assert describe_folder(tmp_path)["max_tokens"] == 512
    (tmp_path / "document" / "tokenizer_config.json").unlink()
    assert describe_folder(tmp_path)["max_tokens"] is None


def test_vectors_can_be_cut_to_widths_below_the_full_one():
    assert widths(16) == [8, 12, 16]
    assert widths(100) == [8, 12, 16, 24, 32, 48, 64, 96, 100]
    assert widths(6) == [6]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("router_config.json", {"structure": ["query"]}),
        ("router_config.json", {"structure": {"query": {"0": "Transformer"}}}),
        ("tokenizer_config.json", {"model_max_length": "512"}),
        ("query_0/config.json", {"hidden_size": "32"}),
    ],
)
def test_values_of_a_wrong_type_are_left_out(tmp_path, file, content):
    (tmp_path / "query_0").mkdir()
    files = {
        "router_config.json": {"structure": {"query": ["query_0"]}},
        "query_0/config.json": {"hidden_size": 32},
        "tokenizer_config.json": {"model_max_length": 64},
    }
    for name, value in (files | {file: content}).items():
        (tmp_path / name).write_text(json.dumps(value))
    told = describe_folder(tmp_path)
    expected = {"embed_dim": widths(32), "max_tokens": 64}
    expected["max_tokens" if file == "tokenizer_config.json" else "embed_dim"] = None
    assert {name: told[name] for name in expected} == expected


def test_weights_with_a_malformed_shape_have_no_number_of_parameters(tmp_path):
    header = json.dumps({"a": {"dtype": "F32", "shape": "ab", "data_offsets": [0, 0]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert describe_folder(tmp_path)["n_parameters"] is None
