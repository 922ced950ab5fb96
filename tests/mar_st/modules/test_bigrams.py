"""Vectors of token pairs: added where the pair stands, for every backbone, loader, dtype and padding."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

from mar_st.errors import MarError
from mar_st.model.encoders import load_encoder
from mar_st.model.mar import open_model
from mar_st.modules.bigrams import BIGRAMS_FILE, Bigrams, BigramTransformer
from tests.mar_st.conftest import make_config, make_tokenizer

FAMILIES = ("bert", "roberta", "xlm-roberta", "gte", "modernbert", "qwen3", "llama")
TEXT = "头疼吃什么药"


def plain(model_type="bert"):
    role = "document" if model_type in ("qwen3", "llama") else "query"
    torch.manual_seed(3)
    modules = load_encoder(
        (make_config(model_type), make_tokenizer(role)), role, max_length=32, pooling="mean"
    )
    return modules[0].eval()


def table(transformer, text=TEXT, *, seed=0, keep=None):
    """Random vectors of the pairs in a text."""
    ids = transformer.preprocess([text])["input_ids"][0]
    pairs = torch.stack([ids[:-1], ids[1:]], dim=1).unique(dim=0)[:keep]
    width = transformer.model.get_input_embeddings().weight.shape[1]
    generator = torch.Generator().manual_seed(seed)
    return Bigrams(pairs, *(torch.randn(len(pairs), width, generator=generator) for _ in range(2)))


def model_of(encoder):
    return SentenceTransformer(
        modules=[encoder, Pooling(encoder.get_embedding_dimension(), "mean"), Normalize()], device="cpu"
    )


def states(encoder, texts):
    features = encoder.preprocess(texts)
    with torch.inference_mode():
        output = encoder(features)
    return output["token_embeddings"], output["attention_mask"].bool()


def test_both_tokens_of_a_pair_get_their_vector():
    pairs = torch.tensor([[5, 7], [7, 5], [1, 2]])
    first, second = torch.randn(3, 4), torch.randn(3, 4)
    added = Bigrams(pairs, first, second)(torch.tensor([[5, 7, 5, 9], [2, 1, 2, 0]]))
    zero = torch.zeros(4)
    expected = [[first[0], second[0] + first[1], second[1], zero], [zero, first[2], second[2], zero]]
    torch.testing.assert_close(added, torch.stack([torch.stack(row) for row in expected]))


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_of_zero_change_nothing(family):
    encoder = plain(family)
    zero = table(encoder)
    with torch.no_grad():
        zero.first.zero_(), zero.second.zero_()
    texts = [TEXT, "药", "吃什么药头疼药药"]
    expected, mask = states(encoder, texts)
    vectors, _ = states(BigramTransformer.of(encoder, zero), texts)
    torch.testing.assert_close(vectors[mask], expected[mask])


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(family, side):
    if (family, side) == ("bert", "left"):
        pytest.skip("transformers counts BERT's positions from the padding")
    encoder = BigramTransformer.of(plain(family), table(plain(family)))
    encoder.tokenizer.padding_side = side
    alone, _ = states(encoder, [TEXT])
    together, mask = states(encoder, [TEXT, TEXT * 4])
    torch.testing.assert_close(together[0][mask[0]], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_embeddings_reach_the_layers(family):
    """Adding a pair's vectors equals changing the embeddings of its two tokens, which occur only there."""
    encoder = plain(family)
    ids = encoder.preprocess([TEXT])["input_ids"][0]
    one, two = (int(token) for token in ids[2:4])
    assert (ids == one).sum() == (ids == two).sum() == 1
    first, second = torch.randn(2, 1, encoder.model.config.hidden_size)
    pair = Bigrams(torch.tensor([[one, two]]), first, second)
    changed = copy.deepcopy(encoder)
    with torch.no_grad():
        weight = changed.model.get_input_embeddings().weight
        weight[one] += first[0]
        weight[two] += second[0]
    expected, _ = states(changed, [TEXT])
    vectors, _ = states(BigramTransformer.of(encoder, pair), [TEXT])
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(vectors, states(encoder, [TEXT])[0], atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_saved_equals_loaded(tmp_path, dtype):
    encoder = plain()
    model = model_of(BigramTransformer.of(encoder, table(encoder))).to(dtype)
    expected = model.encode([TEXT, "药"])
    model.save(str(tmp_path / "model"))
    for loaded in (
        open_model(tmp_path / "model", device="cpu", model_kwargs={"dtype": "auto"}),
        SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True),
    ):
        assert isinstance(loaded[0], BigramTransformer)
        assert loaded[0].bigrams.first.dtype == loaded[0].model.dtype == dtype
        assert (loaded.encode([TEXT, "药"]) == expected).all()


def test_other_backends_are_refused(tmp_path):
    encoder = plain()
    model_of(BigramTransformer.of(encoder, table(encoder))).save(str(tmp_path / "model"))
    with pytest.raises(MarError, match=r"only with torch, not with onnx\. .* mar export"):
        open_model(tmp_path / "model", device="cpu", backend="onnx")


@pytest.mark.thorough
@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_damaged_file_gives_one_error(tmp_path, damage):
    encoder = plain()
    folder = tmp_path / "model"
    model_of(BigramTransformer.of(encoder, table(encoder))).save(str(folder))
    (path,) = folder.rglob(BIGRAMS_FILE)
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:100])
    else:
        tensors = load_file(path)
        del tensors["second"]
        save_file(tensors, path)
    with pytest.raises(MarError, match=r"cannot be loaded|damaged"):
        open_model(str(folder), device="cpu").encode([TEXT])
