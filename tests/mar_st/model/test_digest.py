"""Models of one document space have one digest, others another; weights are not loaded."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.model.digest import model_digest, modules_digest, space_of
from mar_st.model.encoders import load_encoder
from mar_st.model.family import add_query_encoder
from tests.mar_st.conftest import make_config, make_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def saved(mar: MAR, tmp_path: Path) -> Path:
    mar.save_pretrained(str(tmp_path / "mar"))
    return tmp_path / "mar"


def weights(folder: Path, side: str) -> Path:
    return next(folder.glob(f"{side}_0_Transformer/model.safetensors"))


def shifted(path: Path) -> None:
    tensors = {name: tensor + 1e-3 for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def test_a_copy_and_an_added_query_encoder_keep_the_space(saved: Path, tmp_path: Path) -> None:
    space = space_of(saved)
    assert space is not None
    assert len(space) == 64
    shutil.copytree(saved, tmp_path / "copy")
    assert space_of(tmp_path / "copy") == space
    torch.manual_seed(7)
    add_query_encoder(saved, load_encoder((make_config("gte"), make_tokenizer("query")), "query"))
    shifted(weights(saved, "query"))
    assert space_of(saved) == space


def test_other_document_weights_prompts_or_cuts_change_the_space(saved: Path, tmp_path: Path) -> None:
    space = space_of(saved)
    settings = saved / "config_sentence_transformers.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps(content | {"prompts": {**content["prompts"], "document": "文："}}))
    assert space_of(saved) != space
    settings.write_text(json.dumps(content | {"prompts": {**content["prompts"], "query": "问："}}))
    assert space_of(saved) == space
    shifted(weights(saved, "document"))
    assert space_of(saved) != space


def test_without_document_encoder_the_space_is_read_from_a_file(saved: Path) -> None:
    for folder in saved.glob("document_*"):
        shutil.rmtree(folder)
    assert space_of(saved) is None
    (saved / "export.json").write_text(json.dumps({"space": "abc"}))
    assert space_of(saved) == "abc"
    (saved / "space.txt").write_text("def\n")
    assert space_of(saved) == "def"


def test_plain_models_and_vector_folders_have_a_space(saved: Path, mar: MAR, tmp_path: Path) -> None:
    mar.encoder("document").save_pretrained(str(tmp_path / "full"))  # at its full width
    assert space_of(tmp_path / "full") not in (None, space_of(saved))
    plain = SentenceTransformer(modules=mar.route_modules("document"), device="cpu")
    plain.save_pretrained(str(tmp_path / "plain"))
    assert space_of(tmp_path / "plain") == space_of(saved)
    # git and the Hub keep no empty folder, such as that of a normalisation.
    shutil.rmtree(next((tmp_path / "plain").glob("*_Normalize")), ignore_errors=True)
    space = space_of(tmp_path / "plain")
    shifted(tmp_path / "plain" / "model.safetensors")
    assert space_of(tmp_path / "plain") not in (None, space)
    vectors = torch.eye(2).numpy()
    assert space_of(write_vectors(tmp_path / "v", ["a", "b"], vectors, space="xyz").path) == "xyz"


def test_folders_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MarError, match="no model folder"):
        space_of(tmp_path / "nothing")
    with pytest.raises(MarError, match="holds no model"):
        space_of(tmp_path)


def test_a_digest_covers_one_side_or_all_files(saved: Path, tmp_path: Path) -> None:
    query, document, whole = (model_digest(saved, route=name) for name in ("query", "document", None))
    (saved / "README.md").write_text("notes")
    assert model_digest(saved) == whole
    shifted(weights(saved, "query"))
    assert model_digest(saved, route="query") != query
    assert model_digest(saved, route="document") == document == space_of(saved)
    assert model_digest(saved) != whole
    assert model_digest("org/model", "main") == "hub:org/model@main"


def test_loaded_modules_have_the_digest_of_their_content(saved: Path, mar: MAR) -> None:
    digest = modules_digest(mar.route_modules("query"))
    loaded = MAR.from_pretrained(saved, device="cpu")
    loaded.encode_queries(["头疼"])  # leaves lengths in the tokenizer
    assert modules_digest(loaded.route_modules("query")) == digest
    assert modules_digest(loaded.route_modules("document")) != digest
    next(loaded.route_modules("query")[0].parameters()).data.add_(1e-3)
    assert modules_digest(loaded.route_modules("query")) != digest
