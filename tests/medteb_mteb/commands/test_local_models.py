from __future__ import annotations

import json
import shutil

import pytest

from medteb_mteb.commands.errors import UserError
from medteb_mteb.commands.local_models import folder_meta, resolve_model


@pytest.fixture(scope="module")
def router_folder(encoder_folder, tmp_path_factory):
    """A saved Router with a query and a document route over two copies of the tiny encoder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Router, Transformer

    routes = {
        name: [Transformer(str(encoder_folder)), Pooling(32, pooling_mode="cls"), Normalize()]
        for name in ("query", "document")
    }
    folder = tmp_path_factory.mktemp("router") / "two-routes"
    SentenceTransformer(modules=[Router(routes)], device="cpu").save(str(folder))
    return folder


def test_a_folder_is_named_after_itself_and_its_revision_follows_its_files(encoder_folder, tmp_path):
    moved = tmp_path / "tiny-encoder"
    shutil.copytree(encoder_folder, moved)
    meta = folder_meta(encoder_folder)
    assert meta.name == "local/tiny-encoder"
    assert folder_meta(moved).revision == meta.revision
    weights = moved / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert folder_meta(moved).revision != meta.revision


def test_the_model_of_a_run_is_named_after_the_run(encoder_folder, tmp_path):
    shutil.copytree(encoder_folder, tmp_path / "my-mar" / "model")
    assert folder_meta(tmp_path / "my-mar" / "model").name == "local/my-mar"


def test_names_of_mteb_and_aliases_win_over_folders_of_the_same_name(encoder_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(encoder_folder, tmp_path / "bm25-jieba")
    assert resolve_model("bm25-jieba").name == "medteb/bm25-jieba"
    assert resolve_model("./bm25-jieba").name == "local/bm25-jieba"


def test_routers_are_loaded_as_mar_and_plain_models_are_not(encoder_folder, router_folder):
    from medteb_mteb.models import MAREncoder

    meta = folder_meta(router_folder)
    assert meta.model_type == ["router"]
    assert isinstance(meta.load_model(device="cpu"), MAREncoder)
    assert not isinstance(folder_meta(encoder_folder).load_model(device="cpu"), MAREncoder)


def test_other_kinds_of_folders_are_refused(encoder_folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds neither"):
        folder_meta(tmp_path / "empty")
    other = tmp_path / "cross"
    shutil.copytree(encoder_folder, other)
    config = other / "config_sentence_transformers.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "CrossEncoder"}))
    with pytest.raises(UserError, match="is a CrossEncoder"):
        folder_meta(other)
