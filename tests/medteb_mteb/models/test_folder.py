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


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: MIT\n---\n", "mit"),
        ("---\nlicense: our own\n---\n", "not specified"),
        ("---\n[broken\n---\n", None),
    ],
)
def test_the_card_gives_the_licence(saved, card, licence):
    (saved / "README.md").write_text(card)
    assert describe_folder(saved)["license"] == mteb.get_model_meta(str(saved)).license == licence


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
