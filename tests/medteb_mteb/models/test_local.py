from __future__ import annotations

import json
import shutil

import mteb
import pytest

from mar_st.errors import MarError
from medteb_mteb.models.local import folder_meta, folder_revision, model_folder, resolve_model


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


def test_a_folder_is_named_after_itself_wherever_it_lies(encoder_folder, tmp_path):
    moved = tmp_path / "tiny-encoder"
    shutil.copytree(encoder_folder, moved)
    meta = folder_meta(encoder_folder)
    assert meta.name == "local/tiny-encoder"
    assert folder_meta(moved).revision == meta.revision


def test_names_that_cannot_be_paths_are_one_error_or_ordinary_names():
    assert model_folder("a" * 300) is None
    assert model_folder("组织/模型" * 100) is None
    with pytest.raises(MarError, match="no such folder"):
        folder_meta(model_folder("~no-such-user/model"))


def test_the_model_of_a_run_is_named_after_the_run(encoder_folder, tmp_path):
    shutil.copytree(encoder_folder, tmp_path / "my-mar" / "model")
    assert folder_meta(tmp_path / "my-mar" / "model").name == "local/my-mar"


def test_names_of_mteb_and_aliases_win_over_folders_of_the_same_name(encoder_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(encoder_folder, tmp_path / "bm25-jieba")
    assert resolve_model("bm25-jieba").name == "medteb/bm25-jieba"
    assert resolve_model("./bm25-jieba").name == "local/bm25-jieba"


def test_routers_are_loaded_as_mar_and_plain_models_are_not(encoder_folder, router_folder):
    from medteb_mteb.models.encoders import MAREncoder

    meta = folder_meta(router_folder)
    assert meta.model_type == ["router"]
    assert isinstance(meta.load_model(device="cpu"), MAREncoder)
    assert not isinstance(folder_meta(encoder_folder).load_model(device="cpu"), MAREncoder)


def test_other_kinds_of_folders_are_refused(encoder_folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MarError, match="holds neither"):
        folder_meta(tmp_path / "empty")
    other = tmp_path / "cross"
    shutil.copytree(encoder_folder, other)
    config = other / "config_sentence_transformers.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "CrossEncoder"}))
    with pytest.raises(MarError, match="is a CrossEncoder"):
        folder_meta(other)


@pytest.mark.parametrize("kind", ["encoder_folder", "router_folder"])
def test_the_stock_command_runs_a_folder(kind, request, no_hub, data_root, tmp_path, monkeypatch):
    from mteb.cli.build_cli import build_cli

    folder = request.getfixturevalue(kind)
    monkeypatch.chdir(folder.parent)
    arguments = ["run", "-t", "MedTEBSTS", "-m", f"./{folder.name}", "--output-folder", str(tmp_path / "out")]
    parsed = build_cli().parse_args(arguments)
    parsed.func(parsed)
    (result,) = (tmp_path / "out").rglob("MedTEBSTS.json")
    meta = json.loads((result.parent / "model_meta.json").read_text())
    assert result.parent.parent.name == f"local__{folder.name}"
    assert result.parent.name == meta["revision"] == folder_revision(folder)
    assert meta["name"] == f"local/{folder.name}"
    assert meta["n_parameters"] > 0
    assert meta["reference"] is None
    cache = mteb.ResultCache(tmp_path / "out")
    assert cache.load_results(models=[meta["name"]]).model_results[0].model_name == meta["name"]


def test_get_model_takes_folders_with_their_prompts(router_folder, no_hub, tmp_path):
    folder = tmp_path / "two"
    shutil.copytree(router_folder, folder)
    config = folder / "config_sentence_transformers.json"
    prompts = {"query": "检索：", "document": "", "STS": "语义："}
    config.write_text(json.dumps({**json.loads(config.read_text()), "prompts": prompts}))
    encoder = mteb.get_model(str(folder), device="cpu")
    assert encoder.model_prompts == prompts
    assert mteb.get_model(str(folder), device="cpu", embed_dim=8).model.truncate_dim == 8
    assert mteb.get_model_meta(str(folder)).name == "local/two"
    with pytest.raises(ValueError, match="revision 0123 not found"):
        mteb.get_model_meta(str(folder), revision="0123")


def test_the_hub_is_never_asked_for_names_of_folders(no_hub, tmp_path):
    with pytest.raises(MarError, match="no such folder"):
        mteb.get_model("./absent")
    with pytest.raises(KeyError, match="local/absent"):
        mteb.get_model("local/absent")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "modules.json").write_text("[]")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\xff" * 40)
    assert folder_meta(tmp_path / "broken").n_parameters is None
