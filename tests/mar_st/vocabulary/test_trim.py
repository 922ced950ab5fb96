"""Models with a cut vocabulary: vectors of texts whose pieces stay are those of before."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from mar_st.errors import MarError
from mar_st.model.describe import count_parameters
from mar_st.model.encoders import load_encoder
from mar_st.stages.retromae import source_head
from mar_st.vocabulary.choose import choose, usage_of
from mar_st.vocabulary.pieces import Pieces
from mar_st.vocabulary.trim import file_texts, trim
from tests.conftest import write_jsonl

from .vocabulary_helpers import FAMILIES, OURS, STRANGE, THEIRS, encoder_folder, unigram


def vectors(folder, texts, dtype=torch.float32):
    modules = load_encoder(folder, "query", pooling="mean", model_kwargs={"dtype": dtype})
    model = SentenceTransformer(modules=[*modules, Normalize()], device="cpu")
    return model.encode(texts, batch_size=4, convert_to_tensor=True).float().numpy()


def enough(folder, prompts=(), texts=OURS):
    """Number of pieces that the texts need."""
    backend = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    pieces = Pieces(backend)
    return choose(pieces, usage_of(backend, pieces, texts, prompts), len(pieces) - 1)[1]


ONE_OF_A_KIND = ("bert", "xlm-roberta", "qwen3", "gemma")


@pytest.mark.thorough(but=["qwen3-dtype4", "bert-dtype0", "xlm-roberta-dtype1"])
@pytest.mark.parametrize(
    ("family", "dtype"),
    [(family, torch.float32) for family in FAMILIES] + [(family, torch.bfloat16) for family in ONE_OF_A_KIND],
)
def test_trimming_keeps_the_vectors_of_the_given_texts(family, dtype, tmp_path):
    folder = encoder_folder(tmp_path / "full", family, dtype=dtype)
    keep = enough(folder)
    done = trim(folder, tmp_path / "cut", keep=keep, texts=OURS)
    assert (done.kept_tokens, done.kept_texts) == (1, 1)
    before, after = (vectors(path, OURS, dtype) for path in (folder, tmp_path / "cut"))
    np.testing.assert_array_equal(before, after)
    assert np.isfinite(vectors(tmp_path / "cut", THEIRS + STRANGE, dtype)).all()
    cut = AutoTokenizer.from_pretrained(tmp_path / "cut")
    config = json.loads((tmp_path / "cut" / "config.json").read_text())
    weights = load_file(tmp_path / "cut" / "model.safetensors")
    rows = {tensor.shape[0] for name, tensor in weights.items() if "embed" in name and "posit" not in name}
    assert config["vocab_size"] == len(cut) == done.pieces[1]
    assert config["vocab_size"] in rows
    assert {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()} == {dtype}
    original = AutoTokenizer.from_pretrained(folder)
    for name in ("pad", "bos", "eos", "cls", "sep", "mask", "unk"):
        assert getattr(cut, f"{name}_token") == getattr(original, f"{name}_token")
        number = getattr(original, f"{name}_token_id")
        if number is not None and json.loads((folder / "config.json").read_text()).get(f"{name}_token_id"):
            assert config[f"{name}_token_id"] == getattr(cut, f"{name}_token_id")
    assert cut.padding_side == original.padding_side
    assert done.parameters == (count_parameters(folder), count_parameters(tmp_path / "cut"))


def test_positions_counted_from_the_padding_token_do_not_move(tmp_path):
    """XLM-RoBERTa's positions start behind the number of its padding token."""
    pieces = ["<s>", "</s>", "<unk>", "龍", "囍", "<pad>"]
    folder = encoder_folder(tmp_path / "full", "xlm-roberta", unigram(pieces))
    config = json.loads((folder / "config.json").read_text())
    assert config["pad_token_id"] == 5
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] not in ("龍", "囍")]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    trim(folder, tmp_path / "cut", keep=enough(folder) + 2, texts=OURS)
    assert json.loads((tmp_path / "cut" / "config.json").read_text())["pad_token_id"] == 5
    np.testing.assert_array_equal(vectors(folder, OURS), vectors(tmp_path / "cut", OURS))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "loader"),
    [(family, AutoModelForMaskedLM) for family in ("bert", "xlm-roberta", "modernbert")]
    + [("qwen3", AutoModelForCausalLM)],
)
def test_heads_are_cut_with_the_embedding(family, loader, tmp_path):
    folder = encoder_folder(tmp_path / "full", family, loader=loader)
    keep = enough(folder)
    trim(folder, tmp_path / "cut", keep=keep, texts=OURS)
    full, cut = (loader.from_pretrained(path).eval() for path in (folder, tmp_path / "cut"))
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (folder, tmp_path / "cut")]
    before, after = (t(OURS[0], return_tensors="pt", return_token_type_ids=False) for t in tokenizers)
    with torch.no_grad():
        wanted, logits = full(**before).logits, cut(**after).logits
    names = tokenizers[1].convert_ids_to_tokens(list(range(logits.shape[-1])))
    rows = tokenizers[0].convert_tokens_to_ids(names)
    torch.testing.assert_close(logits, wanted[..., rows])
    if loader is AutoModelForMaskedLM:
        head = source_head(str(tmp_path / "cut"))
        assert head is not None
        assert head.bias.shape[0] == logits.shape[-1]


@pytest.mark.thorough
def test_sharded_weights_are_trimmed(tmp_path):
    folder = encoder_folder(tmp_path / "full", "qwen3")
    model = AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    keep = enough(folder)
    trim(folder, tmp_path / "cut", keep=keep, texts=OURS)
    listing = json.loads((tmp_path / "cut" / "model.safetensors.index.json").read_text())
    assert listing["metadata"]["total_size"] == 4 * count_parameters(tmp_path / "cut")
    np.testing.assert_array_equal(vectors(folder, OURS), vectors(tmp_path / "cut", OURS))


def test_a_sentence_transformers_folder_keeps_everything_else(tmp_path):
    modules = load_encoder(encoder_folder(tmp_path / "plain", "bert"), "query", pooling="mean", projection=16)
    model = SentenceTransformer(
        modules=[*modules, Normalize()], prompts={"query": "询问: ", "document": ""}, device="cpu"
    )
    model.save_pretrained(str(tmp_path / "full"), create_model_card=False)
    (tmp_path / "full" / "onnx").mkdir()
    (tmp_path / "full" / "onnx" / "model.onnx").write_text("of the old vocabulary")
    (tmp_path / "full" / "LICENSE").write_text("MIT")
    keep = enough(tmp_path / "full", ["询问: "])
    trim(tmp_path / "full", tmp_path / "cut", keep=keep, texts=OURS)
    cut = SentenceTransformer(str(tmp_path / "cut"), device="cpu")
    for prompt in ("query", "document"):  # the pieces of prompts are counted
        np.testing.assert_array_equal(
            model.encode(OURS, prompt_name=prompt), cut.encode(OURS, prompt_name=prompt)
        )
    assert (tmp_path / "cut" / "LICENSE").read_text() == "MIT"
    assert not (tmp_path / "cut" / "onnx").exists()
    assert not list((tmp_path / "cut").rglob("vocab.txt"))
    assert cut.prompts == model.prompts


def test_what_cannot_be_trimmed_is_refused(tmp_path):
    folder = encoder_folder(tmp_path / "full")
    project = tmp_path / "project"
    project.mkdir()
    (project / "thesis.txt").write_text("x")
    for out in (project, folder):
        with pytest.raises(MarError, match="exists"):
            trim(folder, out, keep=90, texts=OURS)
    with pytest.raises(MarError, match="number between"):
        trim(folder, tmp_path / "a", keep=10_000, texts=OURS)
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(MarError, match="damaged weights"):
        trim(folder, tmp_path / "a", keep=90, texts=OURS)
    (folder / "model.safetensors").unlink()
    with pytest.raises(MarError, match=r"holds no model\.safetensors"):
        trim(folder, tmp_path / "a", keep=90, texts=OURS)
    assert not (tmp_path / "a").exists()
    assert (project / "thesis.txt").read_text() == "x"


def test_texts_are_read_from_every_kind_of_file(tmp_path):
    write_jsonl(tmp_path / "pairs.jsonl", [{"query": "头疼", "positive": "休息", "negative": "下跌"}])
    write_jsonl(tmp_path / "texts.jsonl", [{"text": "多喝水"}])
    (tmp_path / "plain.txt").write_text("一行\n\n两行\n")
    write_jsonl(tmp_path / "task" / "corpus.jsonl", [{"_id": "1", "title": "题", "text": "文"}])
    write_jsonl(tmp_path / "task" / "queries.jsonl", [{"_id": "2", "text": "问"}])
    assert sorted(file_texts(str(tmp_path / "pairs.jsonl"))) == sorted(["头疼", "休息", "下跌"])
    assert list(file_texts(str(tmp_path / "texts.jsonl"))) == ["多喝水"]
    assert list(file_texts(str(tmp_path / "plain.txt"))) == ["一行", "两行"]
    assert list(file_texts(str(tmp_path / "task"))) == ["题", "文", "问"]
    (tmp_path / "none.txt").write_text("")
    for missing in ("none.txt", "nowhere.jsonl"):
        with pytest.raises(MarError):
            file_texts(str(tmp_path / missing))
