"""Encoders of every backbone family that recipes name: ids and vectors are those of before saving."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertTokenizer,
    GemmaTokenizer,
    GPTNeoXTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
    XLMRobertaTokenizer,
)

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.model.tokenizers import append_eos

CORPUS = ["头疼吃什么药", "高血压的饮食 low salt", "fever and cough in children", "a b c d e f"] * 3
TEXTS = ["头疼吃什么药", "fever, cough", "a", " two  spaces", "长" * 300, ""]


def byte_level(special):
    """Vocabulary and merges of a small byte-level BPE, special tokens first."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    model = json.loads(backend.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def characters(special):
    """Vocabulary of single characters and bytes, as the sentencepiece families have."""
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += sorted(set("".join(CORPUS)) - {" "})
    return {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}


def gpt_neox():
    vocab, merges = byte_level(["<|endoftext|>", "<|padding|>"])
    return GPTNeoXTokenizer(vocab=vocab, merges=merges)


def qwen2():
    vocab, merges = byte_level(["<|endoftext|>"])
    return Qwen2Tokenizer(vocab=vocab, merges=merges, eos_token="<|endoftext|>", pad_token="<|endoftext|>")


def llama():
    return LlamaTokenizer(vocab=characters(["<unk>", "<s>", "</s>"]), merges=[], add_bos_token=True)


def llama3():
    """A general fast tokenizer whose template stands behind a byte-level processor, as Llama 3's does."""
    vocab, merges = byte_level(["<|begin_of_text|>", "<|end_of_text|>"])
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    begin = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", 0)],
    )  # fmt: skip
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begin])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>"
    )


def gemma():
    return GemmaTokenizer(vocab=characters(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]), merges=[])


def bert():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set("".join(CORPUS)) - {" "})]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    return BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)})


def xlm_roberta():
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *sorted(set("".join(CORPUS)) - {" "}), "<mask>"]
    return XLMRobertaTokenizer(vocab=[(piece, -float(index)) for index, piece in enumerate(pieces)])


DECODER = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 128,
}  # fmt: skip
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
DOCUMENTS = {
    "gpt_neox": (gpt_neox, {}),
    "gemma": (gemma, GROUPED),
    "llama": (llama, {"num_key_value_heads": 2}),
    "llama3": (llama3, {"num_key_value_heads": 2}),
    "mistral": (llama, GROUPED),
    "qwen2": (qwen2, {"num_key_value_heads": 2}),
    "qwen3": (qwen2, GROUPED),
}
QUERIES = {
    "bert": (bert, {}),
    "xlm-roberta": (xlm_roberta, {}),
    "gte": (xlm_roberta, {}),
    "modernbert": (bert, {}),
}


def folder_of(name, table, path, dtype):
    """A checkpoint as users have them: weights of one dtype and the family's own tokenizer class."""
    make, options = table[name]
    tokenizer = make()
    kind = "llama" if name == "llama3" else name
    ids = {key: getattr(tokenizer, key) for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), initializer_range=0.2, **ids, **DECODER, **options
    )
    model = AutoModel.from_config(config).to(dtype)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def ids(model, texts, route):
    return model[0].sub_modules[route][0].preprocess(texts)["input_ids"].tolist()


@pytest.mark.thorough(but=["bert-dtype0", "gte-dtype1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("query", QUERIES)
def test_saving_keeps_ids_and_vectors_of_query_families(query, dtype, tmp_path):
    check(query, "qwen3", dtype, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_saving_keeps_ids_and_vectors_of_document_families(document, dtype, tmp_path):
    check("bert", document, dtype, tmp_path)


def check(query, document, dtype, tmp_path):
    query_folder = folder_of(query, QUERIES, tmp_path / "query", dtype)
    document_folder = folder_of(document, DOCUMENTS, tmp_path / "document", dtype)
    model = MAR.from_encoders(query_folder, document_folder, max_length=64, device="cpu")
    original = AutoTokenizer.from_pretrained(document_folder)
    eos = model.route_modules("document")[0].tokenizer.eos_token_id
    for text in TEXTS:
        (token_ids,) = ids(model, [text], "document")
        wanted = original(text, truncation=True, max_length=63)["input_ids"]
        assert token_ids == (wanted if wanted and wanted[-1] == eos else [*wanted, eos])
        assert len(token_ids) <= 64
    model.save_pretrained(str(tmp_path / "mar"))
    vectors = {route: model.encode(TEXTS, task=route) for route in model.routes}
    for loaded in (
        MAR.from_pretrained(tmp_path / "mar", device="cpu"),
        SentenceTransformer(str(tmp_path / "mar"), device="cpu"),
    ):
        for route in model.routes:
            assert ids(loaded, TEXTS, route) == ids(model, TEXTS, route)
            assert all(ids(loaded, [text], route) == ids(model, [text], route) for text in TEXTS)
            np.testing.assert_allclose(
                np.float32(loaded.encode(TEXTS, task=route)), vectors[route], atol=2e-2
            )
    (saved,) = (tmp_path / "mar").glob("document_0_*")
    plain = AutoTokenizer.from_pretrained(saved)
    assert [plain(text)["input_ids"][-1] for text in TEXTS] == [eos] * len(TEXTS)
    again = load_encoder(saved, "document", max_length=64)
    assert again[0].preprocess(TEXTS)["input_ids"].tolist() == ids(model, TEXTS, "document")


def test_a_tokenizer_without_a_fast_form_is_refused():
    class Slow:
        eos_token = "</s>"

    with pytest.raises(MarError, match="no fast form"):
        append_eos(Slow())
