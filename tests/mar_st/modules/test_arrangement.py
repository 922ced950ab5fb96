"""Tests that arranged modules compute the vectors of the routes they were made of."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers.base.modules import Dense, Normalize, Router
from torch import nn

from mar_st.modules.arrangement import arrange, is_truncation, route, truncation


def dense(width_in, width_out):
    return Dense(width_in, width_out, bias=False, activation_function=nn.Identity())


def vectors(modules, inputs):
    features = {"sentence_embedding": inputs}
    for module in modules:
        features = module(features)
    return features["sentence_embedding"]


def route_of(modules, name):
    return route(nn.Sequential(*modules), name)


#: Modules of the two routes behind their encoders, and the classes of the arranged top-level modules.
CHAINS = {
    "normalised": (lambda: [Normalize()], lambda: [Normalize()], [Router, Normalize]),
    "bare": (list, list, [Router]),
    "unequal": (lambda: [Normalize()], list, [Router]),
    "cut": (lambda: [Normalize()], lambda: [truncation(8, 4), Normalize()], [Router, Router]),
    "cut twice": (
        lambda: [Normalize()],
        lambda: [Normalize(), truncation(8, 4), Normalize()],
        [Router, Router],
    ),
    "cut last": (lambda: [Normalize()], lambda: [Normalize(), truncation(8, 4)], [Router, Router]),
    "cut alone": (list, lambda: [truncation(8, 4)], [Router, Router]),
    "projected query": (lambda: [dense(4, 8), Normalize()], lambda: [Normalize()], [Router, Normalize]),
}


@pytest.fixture(params=CHAINS)
def chains(request):
    torch.manual_seed(0)
    query, document, kinds = CHAINS[request.param]
    return {"query": [dense(3, 4), *query()], "document": [dense(3, 8), *document()]}, kinds


def test_routes_compute_the_same_vectors_as_before(chains):
    before, kinds = chains
    inputs = torch.randn(5, 3)
    expected = {name: vectors(chain, inputs) for name, chain in before.items()}
    modules = arrange(before)
    assert [type(module) for module in modules] == kinds
    for name, values in expected.items():
        torch.testing.assert_close(vectors(route_of(modules, name), inputs), values)


def test_the_document_encoder_is_the_first_route_and_stays_in_the_first_router(chains):
    before, _ = chains
    router = arrange(before)[0]
    assert list(router.sub_modules) == ["document", "query"]
    assert router.default_route is None
    for name, chain in before.items():
        assert router.sub_modules[name][0] is chain[0]


def test_only_layers_behind_the_document_encoder_leave_the_first_router():
    query, document = [dense(3, 2), dense(2, 4), Normalize()], [dense(3, 8), dense(8, 4), Normalize()]
    first, second = arrange({"query": query, "document": document})
    assert list(first.sub_modules["query"]) == query[:2]
    assert list(first.sub_modules["document"]) == document[:1]
    assert second.sub_modules["document"][0] is document[1]


def test_routes_share_no_module_of_the_second_router():
    shared = Normalize()
    chains = {
        "query": [dense(3, 4), shared],
        "query-small": [dense(3, 4), shared],
        "document": [dense(3, 8), truncation(8, 4), shared],
    }
    second = arrange(chains)[1]
    modules = [module for chain in second.sub_modules.values() for module in chain]
    assert len({id(module) for module in modules}) == len(modules)


def test_arranging_twice_changes_nothing_more():
    chains = {"query": [dense(3, 4), Normalize()], "document": [dense(3, 8), truncation(8, 4), Normalize()]}
    once = arrange(chains)
    twice = arrange({name: route_of(once, name) for name in chains})
    for name in chains:
        kinds = [[type(module) for module in route_of(modules, name)] for modules in (once, twice)]
        assert kinds[0] == kinds[1]
    inputs = torch.randn(5, 3)
    assert torch.equal(
        vectors(route_of(once, "document"), inputs), vectors(route_of(twice, "document"), inputs)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_cut_keeps_the_first_dimensions_exactly(dtype):
    layer = truncation(12, 5).to(dtype)
    whole = torch.randn(4, 12).to(dtype)
    assert torch.equal(layer({"sentence_embedding": whole})["sentence_embedding"], whole[:, :5])
    assert is_truncation(layer)
    assert not any(parameter.requires_grad for parameter in layer.parameters())


def test_other_linear_layers_are_not_taken_for_a_cut():
    cut = truncation(6, 3)
    cut.linear.weight[0, 1] = 1e-3
    assert not is_truncation(cut)
    assert not is_truncation(Dense(6, 3, bias=True, activation_function=nn.Identity()))
    assert not is_truncation(Dense(6, 3, bias=False))
    assert not is_truncation(nn.Linear(6, 3))
