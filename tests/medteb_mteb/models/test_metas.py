from __future__ import annotations

import logging
import sys
import types

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.types import PromptType
from torch.utils.data import DataLoader
from transformers import BertConfig, Qwen3Config

from mar_st import MAR
from mar_st.model import names
from mar_st.model.prompts import PUBLISHED_PROMPTS
from mar_st.model.tokenizers import train_tokenizer
from medteb_mteb.models import metas
from medteb_mteb.models.folder import describe_folder, folder_revision
from medteb_mteb.models.metas import MAREncoder, ModelUnavailableError

TEXTS = ["感冒发烧吃什么药", "血压高怎么办", "胃疼可以喝粥吗", "糖尿病能吃水果吗", "孩子咳嗽有痰"]
TEXTS = [*TEXTS, *PUBLISHED_PROMPTS.values()] * 4


@pytest.fixture(scope="module")
def mar() -> MAR:
    query = train_tokenizer(TEXTS, "query", vocab_size=80, max_token_length=1)
    document = train_tokenizer(TEXTS, "document", vocab_size=90, max_token_length=1)
    small = {
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "initializer_range": 0.5,
    }
    bert = BertConfig(vocab_size=len(query), hidden_size=16, max_position_embeddings=256, **small)
    qwen = Qwen3Config(
        vocab_size=len(document),
        hidden_size=32,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        **small,
    )
    return MAR.from_encoders((bert, query), (qwen, document), dim=16, device="cpu")


@pytest.fixture
def saved(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "mar"))
    return tmp_path / "mar"


def loader(texts: list[str], **columns) -> DataLoader:
    return DataLoader(Dataset.from_dict({"text": texts, **columns}), batch_size=2)


def encode(encoder, texts, task="MedTEBRetrieval", role=None, **columns):
    where = {"task_metadata": mteb.get_task(task).metadata, "hf_split": "test", "hf_subset": "default"}
    return encoder.encode(loader(texts, **columns), prompt_type=role, show_progress_bar=False, **where)


def test_roles_take_their_routes_and_prompts(mar):
    encoder = MAREncoder(mar)
    texts = ["感冒发烧吃什么药", "胃疼可以喝粥吗", "血压高怎么办"]
    query = encode(encoder, texts, role=PromptType.query)
    np.testing.assert_allclose(query, mar.encode_queries(texts, task="retrieval"), atol=1e-6)
    rerank = encode(encoder, texts, "CMedQAv1-reranking", PromptType.query)
    np.testing.assert_allclose(rerank, mar.encode_queries(texts, task="rerank"), atol=1e-6)
    assert np.abs(query - rerank).max() > 1e-3  # the two instructions do differ
    document = encode(encoder, texts, role=PromptType.document)
    np.testing.assert_allclose(document, mar.encode_corpus(texts), atol=1e-6)
    plain = encode(encoder, texts, "TNews")
    np.testing.assert_allclose(plain, mar.encode(texts, task="query", prompt=""), atol=1e-6)
    assert np.abs(plain - query).max() > 1e-3


def test_documents_are_joined_as_mar_joins_them(mar):
    encoder = MAREncoder(mar)
    bodies, titles = ["多喝水", "少吃盐"], ["感冒", ""]
    vectors = encode(
        encoder, ["感冒 多喝水", "少吃盐"], role=PromptType.document, title=titles, body=bodies
    )  # fmt: skip
    expected = mar.encode_corpus([{"title": t, "text": b} for t, b in zip(titles, bodies, strict=True)])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


@pytest.mark.parametrize("route", ["query-query", "query-document"])
def test_the_sts_route_chooses_the_encoder_of_second_sentences(mar, route):
    encoder = MAREncoder(mar, sts_route=route)
    first, second = ["感冒发烧吃什么药", "血压高怎么办"], ["孩子咳嗽有痰", "胃疼可以喝粥吗"]
    as_queries = mar.encode_queries(second, task="sts")
    as_documents = mar.encode_corpus(second)
    for _ in range(2):  # a second evaluation starts with first texts again
        vectors = encode(encoder, first, "MedTEBSTS")
        np.testing.assert_allclose(vectors, mar.encode_queries(first, task="sts"), atol=1e-6)
        vectors = encode(encoder, second, "MedTEBSTS")
        expected = as_queries if route == "query-query" else as_documents
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert np.abs(as_queries - as_documents).max() > 1e-3


def test_sts_recovers_from_a_failure_half_way(mar, monkeypatch):
    encoder = MAREncoder(mar, sts_route="query-document")
    texts = ["感冒发烧吃什么药"]
    encode(encoder, texts, "MedTEBSTS")
    with monkeypatch.context() as patch:
        patch.setattr("mar_st.encode.engine.Engine.encode", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode(encoder, texts, "MedTEBSTS")
    vectors = encode(encoder, texts, "MedTEBSTS")
    np.testing.assert_allclose(vectors, mar.encode_queries(texts, task="sts"), atol=1e-6)


def test_the_sts_route_changes_the_score_of_mteb(mar, data_root):
    scores = {}
    for route in ("query-query", "query-document"):
        encoder = MAREncoder(mar, sts_route=route)
        task = mteb.get_task("MedTEBSTS")
        result = mteb.evaluate(encoder, task, cache=None, show_progress_bar=False).task_results[0]
        scores[route] = result.scores["test"][0]["cosine_pearson"]
    assert scores["query-query"] != scores["query-document"]


def test_an_unknown_sts_route_lists_the_known(mar):
    with pytest.raises(ValueError, match="query-query, query-document"):
        MAREncoder(mar, sts_route="document-document")


def test_stored_prompts_are_all_understood_by_mteb(mar, caplog):
    with caplog.at_level(logging.WARNING):
        encoder = MAREncoder(mar)
    assert "not valid" not in caplog.text
    assert {name: encoder.model_prompts[name] for name in PUBLISHED_PROMPTS} == PUBLISHED_PROMPTS


def test_a_folder_is_described_without_loading_it(mar, saved):
    told = describe_folder(saved)
    parameters = sum(p.numel() for p in mar.parameters())
    assert told["n_parameters"] == parameters
    words = [mar.route_modules(route)[0].auto_model.get_input_embeddings() for route in mar.routes]
    assert told["n_embedding_parameters"] == sum(embedding.weight.numel() for embedding in words)
    assert told["embed_dim"] == 16
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


def _package(monkeypatch, folder):
    """Let a folder stand for the packaged model."""
    for module in (metas, names):
        monkeypatch.setattr(module, "packaged_folder", lambda: folder)


def test_mini_is_loaded_from_the_package(saved, monkeypatch, data_root):
    _package(monkeypatch, saved)
    meta = metas._mini_meta()
    assert (meta.name, meta.revision) == ("medteb/mar-mini", folder_revision(saved))
    assert meta.embed_dim == [8, 12, 16]
    assert meta.is_zero_shot_on(["MedTEBRetrieval"]) is False
    assert meta.is_zero_shot_on(["CMedQAv1-reranking"]) is True
    encoder = meta.load_model(device="cpu", sts_route="query-document")
    assert encoder.sts_route == "query-document"
    assert encoder.mteb_model_meta.experiment_name == "sts_route_query-document"  # results are kept apart
    result = mteb.evaluate(encoder, mteb.get_task("MedTEBRetrieval"), cache=None, show_progress_bar=False)
    assert 0 <= result.task_results[0].get_score() <= 1
    (next(saved.rglob("*.safetensors"))).touch()
    (saved / "extra.json").write_text("{}")
    with pytest.raises(ModelUnavailableError, match="not the model that was there"):
        meta.load_model(device="cpu")


@pytest.mark.thorough
def test_a_model_is_loaded_with_fewer_dimensions(saved, monkeypatch):
    _package(monkeypatch, saved)
    full, cut = (metas._mini_meta().load_model(device="cpu", embed_dim=dim) for dim in (None, 8))
    texts = ["感冒发烧吃什么药", "血压高怎么办"]
    for role in (PromptType.query, PromptType.document):
        np.testing.assert_allclose(
            encode(cut, texts, role=role), encode(full, texts, role=role)[:, :8], atol=1e-6
        )
    assert cut.mteb_model_meta.experiment_name == "embed_dim_8"
    with pytest.raises(ValueError, match="supported embedding dimensions"):
        metas._mini_meta().load_model(device="cpu", embed_dim=1000)


@pytest.mark.thorough
@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_lower_precisions_are_those_of_sentence_transformers(mar, precision, data_root):
    encoder, texts = MAREncoder(mar), ["感冒发烧吃什么药", "血压高怎么办", "胃疼可以喝粥吗"]
    where = {"task_metadata": mteb.get_task("MedTEBRetrieval").metadata}
    vectors = encoder.encode(
        loader(texts), hf_split="test", hf_subset="default", prompt_type=PromptType.document,
        precision=precision, **where,
    )  # fmt: skip
    expected = mar.encode_document(texts, precision=precision)
    assert vectors.dtype == np.float32
    if "binary" in precision:
        np.testing.assert_array_equal(vectors > 0, mar.encode_document(texts) > 0)
        assert set(np.unique(vectors)) == {-1.0, 1.0}
        assert expected.shape[1] * 8 == vectors.shape[1]
    else:
        assert np.abs(vectors - expected).max() <= 1  # one step: batches round otherwise
        assert len(np.unique(vectors)) > 3
    for name in ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"):
        if precision == "ubinary":
            continue  # mteb's own list of precisions has no such one
        result = mteb.evaluate(
            encoder, mteb.get_task(name), cache=None, encode_kwargs={"precision": precision},
            show_progress_bar=False,
        )  # fmt: skip
        # Sixteen random bits may give every pair one cosine, which has no correlation.
        assert np.isfinite(result.task_results[0].get_score()) or (name, precision) == ("MedTEBSTS", "binary")


def test_mini_without_weights_says_how_to_train_it(tmp_path, monkeypatch):
    _package(monkeypatch, tmp_path / "absent")
    with pytest.raises(ModelUnavailableError, match=r"absent.*mar train mar-mini"):
        metas._mini_meta().load_model()


@pytest.mark.thorough
def test_a_model_in_a_package_of_its_own_is_found_once_installed(saved, tmp_path, monkeypatch, data_root):
    from mar_st.model.packed import pack

    monkeypatch.setenv("MAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MAR_HOME", raising=False)
    monkeypatch.setattr("mar_st.model.names.find_spec", lambda name: None)
    absent = metas._installed_meta("medteb/mar-zh")
    assert (absent.revision, absent.n_parameters) == ("not-installed", metas.ZH_PARAMETERS)
    with pytest.raises(ModelUnavailableError, match=r"pip install \./models/mar-zh`"):
        absent.load_model()
    monkeypatch.undo()
    monkeypatch.setenv("MAR_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "site" / "mar_zh"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    pack(saved, package / "model")
    monkeypatch.delitem(sys.modules, "mar_zh", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    meta = metas._installed_meta("medteb/mar-zh")
    assert meta.revision == folder_revision(package / "model")
    assert meta.n_parameters == describe_folder(saved)["n_parameters"]
    assert meta.is_zero_shot_on(["MedTEBRetrieval"]) is True
    assert not (tmp_path / "cache").exists()  # looking at it writes nothing
    result = mteb.evaluate(
        meta.load_model(device="cpu"), mteb.get_task("MedTEBSTS"), cache=None, show_progress_bar=False
    )
    assert np.isfinite(result.task_results[0].get_score())


def test_a_trained_folder_comes_before_the_published_weights(saved, monkeypatch):
    home = saved.parent
    saved.rename(home / "mar-0.3b-4b")
    monkeypatch.setenv("MAR_HOME", str(home))
    meta = metas._large_meta("medteb/mar-0.3b-4b", 1, 1)
    assert meta.similarity_fn_name.value == "cosine"
    assert meta.license is None
    assert max(meta.embed_dim) == 16
    encoder = meta.load_model(device="cpu")
    assert encode(encoder, ["头疼"], role=PromptType.query).shape == (1, 16)


def published(monkeypatch, assemble) -> None:
    module = types.ModuleType("mar_st.model.published")
    module.assemble = assemble
    monkeypatch.setitem(sys.modules, "mar_st.model.published", module)


def test_published_weights_show_their_licence(mar, monkeypatch, tmp_path):
    asked = []
    published(monkeypatch, lambda source, **options: asked.append(source) or mar)
    monkeypatch.delenv("MAR_HOME", raising=False)
    with pytest.warns(UserWarning, match="PhilipGAQ/CARE-0.3B-8B, licence cc-by-nc-sa-4.0"):
        encoder = mteb.get_model("mar-0.3b-8b", device="cpu")
    assert asked == ["PhilipGAQ/CARE-0.3B-8B"]
    assert encoder.mteb_model_meta.license == "cc-by-nc-sa-4.0"
    assert encoder.mteb_model_meta.similarity_fn_name.value == "dot"

    (tmp_path / "CARE-0.3B-8B").mkdir()  # a downloaded copy
    monkeypatch.setenv("MAR_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match="licence"):
        mteb.get_model("mar-0.3b-8b", device="cpu")
    assert asked[1:] == [str(tmp_path / "CARE-0.3B-8B")]


def test_without_any_weights_both_ways_are_named(monkeypatch):
    def assemble(source, **options):
        raise OSError(f"{source} is not reachable\nand more")

    published(monkeypatch, assemble)
    with pytest.warns(UserWarning, match="licence"), pytest.raises(ModelUnavailableError) as caught:
        mteb.get_model("mar-0.3b-4b")
    message = str(caught.value)
    assert "mar train mar-0.3b-4b" in message
    assert "MAR_HOME" in message
    assert "PhilipGAQ/CARE-0.3B-4B (cc-by-nc-sa-4.0)" in message
    assert "OSError: PhilipGAQ/CARE-0.3B-4B is not reachable" in message
    assert "and more" not in message


def test_published_models_declare_their_size_and_training_data():
    four, eight = mteb.get_model_meta("mar-0.3b-4b"), mteb.get_model_meta("mar-0.3b-8b")
    assert round(four.n_parameters / 1e9, 2) == 4.33
    assert round(eight.n_parameters / 1e9, 2) == 7.87
    assert four.is_zero_shot_on(["CMedQAv1-reranking"]) is False
    assert mteb.get_model_meta("bm25-jieba").is_zero_shot_on(["MedTEBRetrieval"]) is True


@pytest.mark.parametrize(
    "name", ["mar-mini", "mar-zh", "mar-0.3b-4b", "mar-0.3b-8b", "bm25-jieba", "bm25-char-bigram"]
)
def test_fields_of_leaderboards_are_filled(name):
    meta = mteb.get_model_meta(name)
    for field in ("release_date", "public_training_code", "n_parameters", "license", "languages"):
        assert getattr(meta, field) is not None, field
