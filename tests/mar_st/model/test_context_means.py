"""Mean hidden states as embeddings: exact where hidden states depend on the token alone, near elsewhere."""

from __future__ import annotations

import copy

import pytest
import torch

from mar_st.errors import MarError
from mar_st.model import context_means, layers
from mar_st.model.context_means import HiddenMeans, cut_encoder, sample
from mar_st.model.encoders import load_encoder
from mar_st.model.layers import keep_layers, layer_stack
from mar_st.modules.bigrams import BigramTransformer
from tests.mar_st.conftest import make_config, make_tokenizer

TEXTS = ["头疼吃什么药", "吃什么药", "药吃什么头疼", "什么头疼药吃"]
FAMILIES = ("bert", "roberta", "xlm-roberta", "gte", "qwen3", "llama")
LAYERS = 4


def encoder(model_type):
    config = make_config(model_type)
    config.num_hidden_layers = LAYERS
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * LAYERS
    role = "document" if model_type in ("qwen3", "llama") else "query"
    torch.manual_seed(3)
    module = load_encoder((config, make_tokenizer(role)), role, max_length=32, pooling="mean")[0]
    return module.eval()


def without_attention(model, layers):
    """Let some layers mix nothing, and positions say nothing, so that states depend on the token alone."""
    _, stack = layer_stack(model)
    with torch.no_grad():
        for layer in stack[:layers]:
            for name, linear in layer.named_modules():
                last = name.rpartition(".")[2]
                if name in ("attention.output.dense", "attention.o_proj") or last == "o_proj":
                    for parameter in linear.parameters():
                        parameter.zero_()
        positions = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
        if positions is not None:
            positions.weight.zero_()


def states(transformer, texts):
    """Token vectors and their mask."""
    features = transformer.preprocess(texts)
    with torch.inference_mode():
        output = transformer(features)
    return output["token_embeddings"], output["attention_mask"].bool()


def cut(transformer, layer, texts, **settings):
    modules = [copy.deepcopy(transformer)]
    cut_encoder(modules, range(layer, LAYERS), texts, **settings)
    return modules[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cut_encoder_is_exact_if_states_depend_only_on_the_token(family, monkeypatch):
    monkeypatch.setattr(context_means, "PRIOR", 1e-6)
    whole = encoder(family)
    without_attention(whole.model, 2)
    expected, mask = states(whole, TEXTS)
    vectors, _ = states(cut(whole, 2, TEXTS), TEXTS)
    copied = copy.deepcopy(whole)
    keep_layers([copied], [2, 3])
    apart = (states(copied, TEXTS)[0] - expected)[mask].abs().max()
    assert apart > 0.1  # the layers that were cut do something
    # The first token of a text counts for no decoder, see the module.
    torch.testing.assert_close(vectors[mask], expected[mask], atol=2e-3, rtol=2e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_of_tokens_start_nearer_still(family):
    """Also in bfloat16, and for a text whose pairs are not among them."""
    texts = TEXTS * 3  # each pair often enough
    whole = encoder(family)
    expected, mask = states(whole, TEXTS)
    single, paired = cut(whole, 2, texts), cut(whole, 2, texts, pairs=100)
    assert isinstance(paired, BigramTransformer)
    errors = [
        (states(module, TEXTS)[0] - expected)[mask].square().mean().item() for module in (paired, single)
    ]
    assert errors[0] < 0.9 * errors[1]
    assert torch.isfinite(states(paired, ["药疼药疼么头"])[0]).all()
    half = copy.deepcopy(whole)
    half.model.to(torch.bfloat16)
    assert cut(half, 2, texts, pairs=100).bigrams.first.dtype == torch.bfloat16


def test_pairs_solve_the_least_squares_problem(monkeypatch):
    """Against a dense solver, with as many alternations as it takes."""
    for name, value in (("PRIOR", 1e-3), ("PAIR_PRIOR", 1e-2), ("SWEEPS", 4000)):
        monkeypatch.setattr(context_means, name, value)
    generator = torch.Generator().manual_seed(0)
    number, width = 60, 3
    states_ = torch.randn(number, width, generator=generator)
    groups, columns, ridge = {}, [], []
    for name, size in (("token", 7), ("first", 5), ("second", 5)):
        rows = torch.randint(-1 if name != "token" else 0, size, (number,), generator=generator)
        there = rows >= 0
        sums = torch.zeros(size, width).index_add_(0, rows[there], states_[there])
        prior = context_means.PRIOR if name == "token" else context_means.PAIR_PRIOR
        count = torch.bincount(rows[there], minlength=size).float()
        groups[name] = context_means._Group(rows, sums, count, prior)
        columns.append(torch.nn.functional.one_hot(rows.clamp_min(0), size).double() * there[:, None])
        ridge += [prior] * size
    design = torch.cat(columns, dim=1)
    expected = torch.linalg.solve(
        design.T @ design + torch.diag(torch.tensor(ridge).double()), design.T @ states_.double()
    )
    fitted = torch.cat(list(context_means._fit(groups).values()))
    torch.testing.assert_close(fitted.double(), expected, atol=1e-3, rtol=1e-3)


def test_pairs_are_the_most_frequent_ones_within_texts():
    whole = encoder("bert")
    texts = ["头疼吃药"] * 4 + ["吃什么药"] * 3 + ["么药"] * 2
    chosen = HiddenMeans.of(whole, 1, texts, pairs=3).pairs
    token = whole.tokenizer.convert_tokens_to_ids
    frequent = {("么", "药"), ("药", "[SEP]")}  # five times, and nine; others at most four
    everything = HiddenMeans.of(whole, 1, texts, pairs=1000).pairs
    ends = {whole.tokenizer.cls_token_id, whole.tokenizer.sep_token_id}
    counted = [tuple(pair) for pair in everything.tolist()]
    assert counted == sorted(counted)
    assert not any(set(pair) <= ends for pair in counted)
    assert {tuple(map(token, pair)) for pair in frequent} < {tuple(pair) for pair in chosen.tolist()}
    assert len(chosen) == 3


def test_refuses_pairs_if_none_is_frequent():
    with pytest.raises(MarError, match=r"No two adjacent tokens occur 3 times in the 1 texts"):
        HiddenMeans.of(encoder("bert"), 1, ["头疼"], pairs=5)


def test_unseen_tokens_get_an_estimate_and_nothing_else_changes():
    whole = encoder("bert")
    smaller = cut(whole, 2, TEXTS)
    own, estimated = (module.model.get_input_embeddings().weight for module in (whole, smaller))
    assert torch.isfinite(estimated).all()
    unseen = whole.tokenizer.convert_tokens_to_ids("[UNK]")
    assert not torch.allclose(estimated[unseen], own[unseen])
    for name, parameter in smaller.model.encoder.layer[0].named_parameters():
        assert torch.equal(parameter, whole.model.encoder.layer[2].get_parameter(name))


def test_padding_and_batches_do_not_matter(monkeypatch):
    whole = encoder("bert")
    together = HiddenMeans.of(whole, 1, TEXTS)
    monkeypatch.setattr(layers, "MAX_PASS_TOKENS", 1)
    alone = HiddenMeans.of(whole, 1, TEXTS)
    torch.testing.assert_close(together.sums["token"], alone.sums["token"], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(together.sums["place"], alone.sums["place"], atol=1e-4, rtol=1e-4)


def test_states_in_bfloat16_have_nearly_the_same_means():
    whole = encoder("bert")
    full, short = (HiddenMeans.of(whole, 2, TEXTS, autocast=on).sums["token"] for on in (False, True))
    assert short.dtype == torch.float32
    assert 0 < (full - short).norm() < 0.02 * full.norm()


def test_positions_help_an_encoder_that_has_them():
    whole = encoder("bert")
    expected, mask = states(whole, TEXTS)
    with_positions = cut(whole, 2, TEXTS)
    without = copy.deepcopy(with_positions)
    with torch.no_grad():
        without.model.embeddings.position_embeddings.weight.zero_()
    near, far = (
        (states(module, TEXTS)[0] - expected)[mask].square().mean() for module in (with_positions, without)
    )
    assert near < far


def test_refuses_no_texts_and_unsupported_models():
    whole = encoder("bert")
    with pytest.raises(MarError, match="averaged over texts; got none"):
        HiddenMeans.of(whole, 1, [])
    with pytest.raises(MarError, match=r"ModernBertModel makes hidden states .* not supported"):
        HiddenMeans.of(encoder("modernbert"), 1, TEXTS)


def test_many_texts_are_sampled_with_a_seed(monkeypatch):
    assert sample(5, 0) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(context_means, "CONTEXT_TEXTS", 3)
    assert sample(100, 0) == sample(100, 0) != sample(100, 1)
    assert len(sample(100, 0)) == 3
