"""Folders that sentence-transformers saved, above all of Qwen3-Embedding's form, as encoders of a MAR."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedTokenizerFast

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.model.prompts import PUBLISHED_PROMPTS
from mar_st.model.saved_modules import saved_modules, with_source_prompts
from mar_st.recipes.load import load_recipe
from mar_st.runs.train import train
from tests.mar_st.conftest import ALPHABET, make_config, make_tokenizer

INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
TEXTS = ["头疼吃什么药", "感冒发热", "高血压"]
#: As the published folder has it: texts end with the padding token, EOS is the one of the chat.
END, EOS = "<|endoftext|>", "<|im_end|>"


def _tokenizer():
    letters = dict.fromkeys([*ALPHABET, *INSTRUCTION])
    vocabulary = {token: index for index, token in enumerate([END, EOS, "[UNK]", *letters])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, vocabulary[END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token=END, eos_token=EOS, padding_side="left",
        model_max_length=131072,
    )  # fmt: skip


@pytest.fixture
def qwen3_embedding(tmp_path):
    """A folder of the published form: transformer, `1_Pooling`, `2_Normalize`, prompts."""
    folder = tmp_path / "Qwen3-Embedding-tiny"
    tokenizer = _tokenizer()
    torch.manual_seed(0)
    config = make_config("qwen3", 32)
    config.vocab_size = len(tokenizer)
    config.max_position_embeddings = 40960
    AutoModel.from_config(config).bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    base = "sentence_transformers"
    listing = [
        {"idx": 0, "name": "0", "path": "", "type": f"{base}.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{base}.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{base}.models.Normalize"},
    ]
    pooling = {
        "word_embedding_dimension": 32,
        **{f"pooling_mode_{mode}": False for mode in ("cls_token", "mean_tokens", "max_tokens")},
        "pooling_mode_lasttoken": True,
        "include_prompt": True,
    }
    settings = {
        "prompts": {"query": INSTRUCTION, "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    for name in ("1_Pooling", "2_Normalize"):
        (folder / name).mkdir()
    for name, content in (
        ("modules.json", listing),
        ("1_Pooling/config.json", pooling),
        ("config_sentence_transformers.json", settings),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def _ids(model, texts=TEXTS):
    return model.tokenizer(texts)["input_ids"]


def test_qwen3_embedding_is_a_document_encoder_unchanged(qwen3_embedding, query_source):
    stock = SentenceTransformer(str(qwen3_embedding), device="cpu")
    mar = MAR.from_encoders(query_source, qwen3_embedding, dim=32, device="cpu")
    transformer, pooling = mar.route_modules("document")[:2]
    assert _ids(transformer) == _ids(stock)
    assert {ids[-1] for ids in _ids(transformer)} == {transformer.tokenizer.pad_token_id}
    assert transformer.tokenizer.padding_side == "left"
    assert pooling.pooling_mode == "lasttoken"
    assert next(transformer.model.parameters()).dtype == torch.bfloat16
    assert mar.prompts["query"] == INSTRUCTION
    assert mar.prompts["document"] == ""
    np.testing.assert_array_equal(mar.encode_corpus(TEXTS), stock.encode_document(TEXTS))


def test_a_mar_saved_from_qwen3_embedding_encodes_the_same(qwen3_embedding, query_source, tmp_path):
    mar = MAR.from_encoders(query_source, qwen3_embedding, dim=32, device="cpu")
    mar.save_pretrained(str(tmp_path / "mar"))
    again = SentenceTransformer(str(tmp_path / "mar"), device="cpu")
    np.testing.assert_array_equal(again.encode_document(TEXTS), mar.encode_corpus(TEXTS))
    assert again.prompts["query"] == INSTRUCTION


def _saved(folder, mode="mean", *, prompts=None, length=24, **options):
    torch.manual_seed(2)
    transformer = load_encoder((make_config("gte", 32), make_tokenizer("query")), "query")[0]
    transformer.max_seq_length = length
    pooling = Pooling(32, mode, **options)
    model = SentenceTransformer(modules=[transformer, pooling, Normalize()], prompts=prompts, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return model


def test_pooling_length_and_prompts_are_those_of_the_folder(tmp_path, document_source):
    model = _saved(tmp_path / "e5", prompts={"query": "头疼："}, include_prompt=False)
    mar = MAR.from_encoders(tmp_path / "e5", document_source, dim=32, device="cpu")
    transformer, pooling = mar.route_modules("query")[:2]
    assert (pooling.pooling_mode, pooling.include_prompt) == ("mean", False)
    assert transformer.max_seq_length == 24
    assert mar.prompts["query"] == "头疼："
    np.testing.assert_array_equal(mar.encode_queries(TEXTS), model.encode_query(TEXTS))


def test_arguments_take_precedence(tmp_path, document_source):
    _saved(tmp_path / "e5", prompts={"query": "头疼："})
    assert load_encoder(tmp_path / "e5", "query", pooling="cls")[1].pooling_mode == "cls"
    assert load_encoder(tmp_path / "e5", "query", max_length=16)[0].max_seq_length == 16
    mar = MAR.from_encoders(
        tmp_path / "e5", document_source, dim=32, prompts={"query": "发热："}, device="cpu"
    )
    assert mar.prompts["query"] == "发热："


def test_published_prompts_stay_if_the_source_has_none(tmp_path, document_source):
    _saved(tmp_path / "plain")
    mar = MAR.from_encoders(tmp_path / "plain", document_source, dim=32, device="cpu")
    assert {name: mar.prompts[name] for name in PUBLISHED_PROMPTS} == PUBLISHED_PROMPTS


def test_errors_name_unsupported_modules(tmp_path):
    _saved(tmp_path / "model")
    listing = tmp_path / "model" / "modules.json"
    modules = json.loads(listing.read_text(encoding="utf-8"))
    modules[2]["type"] = "sentence_transformers.models.LayerNorm"
    listing.write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(MarError, match="has the module LayerNorm"):
        load_encoder(tmp_path / "model", "query")


def test_errors_name_an_unsupported_pooling(tmp_path):
    _saved(tmp_path / "model", "max")
    with pytest.raises(MarError, match="pools by 'max'"):
        load_encoder(tmp_path / "model", "query")
    assert load_encoder(tmp_path / "model", "query", pooling="mean")[1].pooling_mode == "mean"


def test_a_plain_transformers_folder_has_no_saved_modules(tmp_path):
    AutoModel.from_config(make_config("gte")).save_pretrained(tmp_path)
    assert saved_modules(tmp_path) is None


@pytest.fixture
def recipe(tmp_path, qwen3_embedding):
    """Builds a recipe that starts from the folder and says nothing about prompts, pooling or length."""
    rows = "".join(
        json.dumps({"query": f"{a}{b}", "positive": f"{b}怎么办{a}"}, ensure_ascii=False) + "\n"
        for a in ("头疼", "发热", "感冒")
        for b in ("吃什么药", "怎么办")
    )
    (tmp_path / "triples.jsonl").write_text(rows, encoding="utf-8")
    torch.manual_seed(4)
    AutoModel.from_config(make_config("gte", 16)).save_pretrained(tmp_path / "query")
    make_tokenizer("query").save_pretrained(tmp_path / "query")

    def build(**settings):
        content = {
            "name": "as-it-is",
            "description": "for tests",
            "dim": 16,
            "precision": "bf16",
            "query": {"source": str(tmp_path / "query")},
            "document": {"source": str(qwen3_embedding)},
            "data": [{"name": "pairs", "path": str(tmp_path / "triples.jsonl"), "negatives": 0}],
            "stages": [
                {"stage": "contrastive", "name": "document-init", "side": "document", "batch_size": 4,
                 "learning_rate": 1e-3, "temperature": 0.1, "max_steps": 2, "lora_r": 2},
            ],
            **settings,
        }  # fmt: skip
        path = tmp_path / "recipe.yaml"
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return load_recipe(path)

    return build


@pytest.mark.thorough
def test_a_recipe_takes_the_prompts_of_its_source(recipe, tmp_path):
    out = train(recipe(), tmp_path / "out", say=lambda line: None)
    model = SentenceTransformer(str(out), device="cpu")
    assert model.prompts["query"] == INSTRUCTION
    assert model[1].pooling_mode == "lasttoken"
    assert model[0].max_seq_length == 512
    assert model[0].tokenizer.padding_side == "left"
    assert next(model[0].model.parameters()).dtype == torch.bfloat16
    stored = json.loads((tmp_path / "out" / "recipe.json").read_text(encoding="utf-8"))
    assert stored["prompts"]["query"] == INSTRUCTION


def test_prompts_given_in_a_recipe_take_precedence(recipe):
    given = recipe(prompts={"query": "问：", "document": ""})
    assert with_source_prompts(given).prompts == given.prompts


def test_an_undefined_prompt_is_refused_before_training(recipe, tmp_path):
    data = [{"name": "pairs", "path": str(tmp_path / "triples.jsonl"), "negatives": 0, "prompt": "STS"}]
    with pytest.raises(MarError, match="the prompt 'STS', which neither"):
        train(recipe(data=data), tmp_path / "out", say=lambda line: None)
    assert not (tmp_path / "out").exists()
