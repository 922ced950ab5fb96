"""Tests of the files that a MAR is loaded from: refused folders, and routes that are loaded alone."""

from __future__ import annotations

import errno
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Normalize, Router
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.lookup import fit_lookup
from mar_st.model.encoders import layer_stack, load_encoder
from mar_st.model.family import add_query_encoder
from mar_st.model.loading import check_folder, check_weights, load_further, load_routes, loading_of
from mar_st.model.opening import open_model
from mar_st.model.packed import pack
from tests.mar_st.conftest import make_config, make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXTS = ["头疼怎么办", "感冒怎么办", "高血压怎么办"]

HUB: dict[str, Any] = {"token": None, "cache_folder": None, "revision": None, "local_files_only": True}
LOADING: dict[str, Any] = {
    "model_kwargs": None, "processor_kwargs": None, "config_kwargs": None, "backend": "torch"
}  # fmt: skip


@pytest.fixture
def folder(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "mar"), create_model_card=False)
    return tmp_path / "mar"


@pytest.fixture
def listings(tmp_path):
    """The listings of a MAR without its weights."""
    router = {
        "types": {"query_0": "sentence_transformers.base.modules.Transformer"},
        "structure": {"query": ["query_0"]},
        "parameters": {"default_route": None, "allow_empty_key": False},
    }
    modules = [{"type": "sentence_transformers.base.modules.router.Router", "path": ""}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "router_config.json").write_text(json.dumps(router))
    check_folder(tmp_path)
    return tmp_path


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}))


@pytest.mark.parametrize(
    "parameters", [None, [], "query", {"default_route": ["query"]}, {"default_route": 0}]
)
def test_damaged_parameters_of_a_router_are_refused(listings, parameters):
    rewrite(listings / "router_config.json", parameters=parameters)
    with pytest.raises(MarError, match=r"router_config\.json is damaged: 'parameters' should .* again"):
        check_folder(listings)


def test_a_router_without_parameters_is_refused(listings):
    path = listings / "router_config.json"
    content = json.loads(path.read_text())
    del content["parameters"]
    path.write_text(json.dumps(content))
    with pytest.raises(MarError, match=r"router_config\.json is damaged: 'parameters' should"):
        check_folder(listings)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"prompts": ',
        b"[]",
        b"null",
        b'{"prompts": null}',
        b"\xff",
        b'{"prompts": ["a"]}',
        b'{"prompts": {"a": 1}}',
    ],
)
def test_a_damaged_file_of_prompts_is_refused(listings, content):
    (listings / "config_sentence_transformers.json").write_bytes(content)
    with pytest.raises(MarError, match=r"config_sentence_transformers\.json is damaged"):
        check_folder(listings)


@pytest.mark.parametrize("structure", [{"query": []}, {"query": "query_0"}])
def test_a_route_without_modules_is_refused(listings, structure):
    rewrite(listings / "router_config.json", structure=structure)
    with pytest.raises(MarError, match=r"router_config\.json is damaged"):
        check_folder(listings)


@pytest.mark.parametrize(
    "kind", ["sentence_transformers.base.modules.Unknown", "sentence_transformers.no.Kind"]
)
def test_a_class_that_sentence_transformers_does_not_have_is_refused(listings, kind):
    rewrite(listings / "router_config.json", types={"query_0": kind})
    with pytest.raises(MarError, match=f"names the class {kind}, which sentence-transformers"):
        check_folder(listings)


@pytest.mark.parametrize("content", [None, {}, {"prompts": {"query": "检索："}}])
def test_prompts_may_be_missing(listings, content):
    if content is not None:
        (listings / "config_sentence_transformers.json").write_text(json.dumps(content))
    check_folder(listings)


def test_folders_without_a_mar_are_refused_with_what_to_do(listings):
    modules = [{"type": f"sentence_transformers.x.{kind}", "path": kind} for kind in ("Pooling", "Normalize")]
    (listings / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(MarError, match=r"without routes \(Pooling, Normalize\).*with SentenceTransformer"):
        check_folder(listings)
    (listings / "modules.json").unlink()
    with pytest.raises(MarError, match=r"holds no modules\.json.*MAR\.from_encoders"):
        check_folder(listings)


def test_a_route_is_loaded_under_another_name_without_the_files_of_the_others(folder):
    rewrite(folder / "config_sentence_transformers.json", prompts={"query": "检索："})
    for part in folder.glob("document*"):
        shutil.rmtree(part)
    (router, second), config = load_routes(str(folder), {"query-small": "query"}, hub=HUB, loading=LOADING)
    assert list(router.sub_modules) == list(second.sub_modules) == ["query-small"]
    assert [type(module) for module in second.sub_modules["query-small"]] == [Normalize]
    assert config["prompts"] == {"query": "检索："}


def test_routes_that_are_missing_are_named(folder):
    with pytest.raises(MarError, match="has no query encoder 'query-2'; it has query"):
        load_routes(str(folder), {"query": "query-2"}, hub=HUB, loading=LOADING)
    (part,) = folder.glob("query_1*")
    shutil.rmtree(part)
    with pytest.raises(MarError, match=rf"lacks {part.name}, a part of its 'query' route; copy it there"):
        load_routes(str(folder), {"query": "query"}, hub=HUB, loading=LOADING)


@pytest.mark.parametrize(
    ("saved", "loaded"), [("document", "query"), ("query", "query"), ("gone", "query"), (None, None)]
)
def test_the_default_route_is_one_that_is_loaded(folder, saved, loaded):
    listing = json.loads((folder / "router_config.json").read_text())
    rewrite(folder / "router_config.json", parameters={**listing["parameters"], "default_route": saved})
    modules, _ = load_routes(str(folder), {"query": "query"}, hub=HUB, loading=LOADING)
    assert modules[0].default_route == loaded


def test_only_routes_that_plain_sentence_transformers_does_not_see_are_further_ones(folder):
    assert load_further(str(folder), {}) == {}
    lookup = fit_lookup(TEXTS, np.eye(3, 32), ridge=0.1, show_progress=False)
    add_query_encoder(folder, [lookup], "query-lookup")
    further = load_further(str(folder), {"revision": None, "device": "cpu"})
    assert list(further) == ["query-lookup"]
    vectors = further["query-lookup"][0].eval()(lookup.preprocess(TEXTS))["sentence_embedding"]
    assert torch.equal(vectors, lookup.eval()(lookup.preprocess(TEXTS))["sentence_embedding"])
    assert set(Router.load_config(str(folder))["structure"]) == {"query", "document"}


@pytest.mark.parametrize(
    ("load", "content"),
    [
        (lambda folder: open_model(folder, device="cpu"), slice(0, -100)),
        (lambda folder: open_model(folder, routes="query", device="cpu"), slice(0, 0)),
        (lambda folder: open_model(folder / "query_0_Transformer", device="cpu"), slice(0, 50)),
        (lambda folder: load_encoder(folder / "query_0_Transformer", "query"), slice(100, None)),
    ],
    ids=["MAR", "one route", "plain model", "encoder"],
)
def test_damaged_weights_are_one_error_that_names_the_file(folder, load, content):
    path = folder / "query_0_Transformer" / "model.safetensors"
    path.write_bytes(path.read_bytes()[content])
    with pytest.raises(MarError, match=rf"{path} holds damaged weights .* save the model again"):
        load(folder)


class CustomPooling(Pooling):
    """A module of another package than sentence-transformers."""


@pytest.mark.parametrize("routes", ["query", "both"])
def test_modules_of_other_packages_need_consent(folder, routes):
    name = f"{CustomPooling.__module__}.CustomPooling"
    types = json.loads((folder / "router_config.json").read_text())["types"]
    rewrite(folder / "router_config.json", types=types | {"query_1_Pooling": name})
    with pytest.raises(ValueError, match="trust_remote_code"):
        MAR.from_pretrained(folder, routes=routes, device="cpu")
    model = MAR.from_pretrained(folder, routes=routes, device="cpu", trust_remote_code=True)
    assert isinstance(model.route_modules("query")[1], CustomPooling)


def test_further_routes_are_loaded_with_the_options_of_the_others(folder):
    texts = [f"头疼{i}" for i in range(30)]
    fitted = fit_lookup(texts, np.eye(30, 32, dtype=np.float32), ridge=1.0, show_progress=False)
    encoder = load_encoder((make_config("gte"), make_tokenizer("query")), "query")
    add_query_encoder(folder, [fitted], "query-lookup")
    add_query_encoder(folder, encoder, "query-other")
    options = {"model_kwargs": {"torch_dtype": torch.float16}, "processor_kwargs": {"model_max_length": 7}}
    model = MAR.from_pretrained(folder, device="cpu", **options)
    assert model.route_modules("query-lookup")[0].embedding.weight.dtype == torch.float16
    assert model.route_modules("query-other")[0].tokenizer.model_max_length == 7


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_pooling(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / "1_Pooling" / "config.json", **changes)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (without("1_Pooling/config.json"), "TypeError: .*embedding_dimension"),
        (with_pooling(pooling_mode="attention"), "ValueError: Invalid pooling mode: 'attention'"),
        (without("model.safetensors"), "OSError: .*no file named model.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "OSError: .*not a valid JSON file"),
    ],
    ids=["no settings of the pooling", "unknown pooling", "no weights", "cut configuration"],
)
def test_a_folder_that_cannot_be_loaded_is_one_error_that_names_it(encoder_folder, tmp_path, damage, reason):
    folder = tmp_path / "copied"
    shutil.copytree(encoder_folder, folder)
    damage(folder)
    with pytest.raises(MarError, match=rf"^{folder} cannot be loaded .*{reason}.* save the model again\.$"):
        open_model(folder, device="cpu")


MISSING_LAYERS = (
    r"holds no weights of .*layers?\.2 to .*layers?\.4, but its config\.json asks for them \(\w+, "
    r"num_hidden_layers 5"
)


@pytest.mark.parametrize(
    "load",
    [
        lambda folder: open_model(folder, device="cpu"),
        lambda folder: open_model(folder, routes="query", device="cpu"),
        lambda folder: MAR(folder, device="cpu"),
        lambda folder: open_model(folder / "query_0_Transformer", device="cpu"),
        lambda folder: load_encoder(folder / "query_0_Transformer", "query"),
    ],
    ids=["MAR", "one route", "MAR by its class", "plain model", "encoder"],
)
def test_layers_without_weights_are_refused(folder, load):
    rewrite(folder / "query_0_Transformer" / "config.json", num_hidden_layers=5)
    with pytest.raises(MarError, match=MISSING_LAYERS + r"\)\. Copy, .* its config\.json\.$"):
        load(folder)


def test_a_layer_in_the_middle_and_the_embeddings_must_have_weights(folder):
    file = folder / "query_0_Transformer" / "model.safetensors"
    stored = load_file(file)
    save_file({name: one for name, one in stored.items() if "layers.0." not in name}, file)
    with pytest.raises(MarError, match=r"holds no weights of (\w+\.)*layers\.0, but its config"):
        open_model(folder, routes="query", device="cpu")
    save_file({name: one for name, one in stored.items() if "word_embeddings" not in name}, file)
    with pytest.raises(MarError, match=r"holds no weights of (\w+\.)*word_embeddings, but its config"):
        open_model(folder, routes="query", device="cpu")


def test_files_of_other_names_of_parameters_are_refused(folder):
    file = folder / "query_0_Transformer" / "model.safetensors"
    save_file({f"other.{name}": one for name, one in load_file(file).items()}, file)
    with pytest.raises(MarError, match=r"holds no weights of a Gte\w+, .*: its files name other parameters"):
        open_model(folder, routes="query", device="cpu")


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (["layers.0.", "layers.2.", "layers.3."], r"layers\.0, layers\.2 to layers\.3"),
        (["layers.1.self_attn.q_proj"], r"layers\.1\.self_attn\.q_proj\.weight"),
        (
            ["q_proj", "k_proj", "embed_tokens"],
            r"embed_tokens, layers\.0\.self_attn\.q_proj\.weight, .* and 5 more",
        ),
    ],
    ids=["some layers", "a part of a layer", "many parts"],
)
def test_missing_weights_are_named_exactly(tmp_path, missing, named):
    config = make_config("qwen3")
    config.num_hidden_layers, config.layer_types = 4, config.layer_types * 2
    AutoModel.from_config(config).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    kept = {name: one for name, one in load_file(file).items() if not any(part in name for part in missing)}
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(MarError, match=rf"holds no weights of {named}, but its config\.json asks"):
        check_weights(AutoModel.from_pretrained(tmp_path), tmp_path)


def test_first_layers_alone_can_be_loaded(folder):
    rewrite(folder / "query_0_Transformer" / "config.json", num_hidden_layers=1)
    model = MAR.from_pretrained(folder, routes="query", device="cpu")
    (encoder, *_) = model.route_modules("query")
    assert layer_stack(encoder.model)[1][0] is layer_stack(encoder.model)[1][-1]


def test_a_pooler_that_no_vector_goes_through_may_be_missing(encoder_folder, tmp_path):
    folder = shutil.copytree(encoder_folder, tmp_path / "copied")
    stored = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in stored.items() if "pooler" not in name}
    assert len(kept) < len(stored)
    save_file(kept, folder / "model.safetensors")
    vectors = open_model(folder, device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(vectors, open_model(encoder_folder, device="cpu").encode(TEXTS))


def test_layers_that_were_moved_to_a_disk_are_not_missing(tmp_path):
    AutoModel.from_config(make_config("qwen3")).save_pretrained(tmp_path)
    places = dict.fromkeys(("embed_tokens", "layers.0", "norm", "rotary_emb"), "cpu") | {"layers.1": "disk"}
    model = AutoModel.from_pretrained(tmp_path, device_map=places, offload_folder=tmp_path / "moved")
    assert {one.device.type for one in model.layers[1].parameters()} == {"meta"}
    check_weights(model, tmp_path)


@pytest.mark.parametrize("base", [None, "someone/absent"])
def test_an_adapter_whose_base_cannot_be_loaded_names_both(encoder_folder, tmp_path, base):
    adapter = shutil.copytree(
        encoder_folder, tmp_path / "adapter", ignore=shutil.ignore_patterns("config.json")
    )
    settings = {"peft_type": "LORA", "base_model_name_or_path": base, "task_type": None}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(MarError, match=rf"^{adapter} holds an adapter, .* gives {base!r} as the base model"):
        MAR.from_encoders(encoder_folder, adapter)


@pytest.mark.parametrize("source", ["model", (object(), "x" * 5000)])
def test_a_full_disk_is_not_taken_for_damaged_weights(source):
    message = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(SafetensorError, match="No space left"), loading_of(source):
        raise SafetensorError(message)


def test_a_folder_of_packed_weights_says_how_to_load_the_model(folder, tmp_path):
    packed = tmp_path / "packed"
    pack(folder, packed)
    for load in (MAR.from_pretrained, open_model):
        with pytest.raises(MarError, match=r"^\S+ holds packed weights .* by its name, such as mar-zh"):
            load(str(packed), device="cpu")


def test_errors_of_the_disk_keep_their_own_message():
    with pytest.raises(OSError, match="No space left"), loading_of("model"):
        raise OSError(errno.ENOSPC, "No space left on device")
