"""Arrangement of a MAR's modules: encoders in a first `Router`, the following modules in a second one.

sentence-transformers casts its top-level modules to the dtype of the model's first parameter, but not modules
inside the first `Router`. So if a document encoder is stored in bfloat16, the layers behind it must be
outside that router, and it must be the router's first route. A query encoder's own linear layer stays inside
the router: the two are trained together in float32.

One of the following modules is the Matryoshka cut of documents. sentence-transformers truncates in `encode`,
after `Normalize` and for all routes; MAR cuts only the document route, before or after normalisation. Of
sentence-transformers' own classes only a `Dense` can do that: one without bias or activation, whose weight is
the first rows of the identity. That product is exact in float32, bfloat16 and float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from sentence_transformers.base.modules import Dense, Normalize, Router
from torch import nn

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def route(model: nn.Module, name: str) -> list[nn.Module]:
    """Return the modules that texts of a route, or of a task, go through, in order.

    Raises:
        ValueError: A router has neither this route nor a default route.
    """
    chain: list[nn.Module] = []
    for module in model.children():
        if isinstance(module, Router):
            router: Any = module
            chain.extend(router.sub_modules[router._resolve_route(task=name)])
        else:
            chain.append(module)
    return chain


def width(modules: Sequence[Any]) -> int:
    """Return the width of the vectors that modules end in."""
    return next(
        int(m.get_embedding_dimension()) for m in reversed(modules) if hasattr(m, "get_embedding_dimension")
    )


def check_similarity(model: Any, what: str) -> None:
    """Refuse a model whose score of two vectors is not their product.

    Raises:
        MarError: It compares by neither cosine nor dot product.
    """
    if model.similarity_fn_name not in ("cosine", "dot"):
        raise MarError(f"{what} compares by {model.similarity_fn_name}; cosine or dot product is needed.")


def arrange(chains: Mapping[str, Sequence[nn.Module]]) -> list[nn.Module]:
    """Return top-level modules that compute the given routes and keep their dtypes in every loader.

    Args:
        chains: Modules of every route, in order; those of `document` may end in linear layers.
    """
    ordered = {name: list(chains[name]) for name in sorted(chains, key=lambda name: name != "document")}
    heads: dict[str, list[nn.Module]] = {}
    tails: dict[str, list[nn.Module]] = {}
    for name, chain in ordered.items():
        start = _start_of_tail(chain, keep_dense=name != "document")
        # A separate normalisation for each route: a router saves a shared module only once.
        tail = [Normalize() if isinstance(module, Normalize) else module for module in chain[start:]]
        heads[name], tails[name] = chain[:start], tail
    if any(isinstance(module, Dense) for tail in tails.values() for module in tail):
        return [_router(heads), _router(tails)]
    if all(len(tail) == 1 for tail in tails.values()):
        return [_router(heads), Normalize()]  # what all routes share
    return [_router(ordered)]


def _start_of_tail(chain: Sequence[nn.Module], *, keep_dense: bool) -> int:
    """Return the position of the first module behind the encoder proper."""
    for index, module in enumerate(chain):
        if index and (isinstance(module, Normalize) or (isinstance(module, Dense) and not keep_dense)):
            return index
    return len(chain)


def _router(chains: Mapping[str, list[nn.Module]]) -> Router:
    # Without a default route, `encode` without a task raises an error that names the routes; otherwise
    # wrappers without roles would silently encode documents with the query encoder.
    modules: Any = dict(chains)
    return Router(modules, default_route=None, allow_empty_key=False)


def truncation(in_features: int, out_features: int) -> Dense:
    """Build the layer that keeps the first `out_features` of `in_features` dimensions; its weight is frozen.

    A saved `Dense` cannot say that it is frozen; `MAR` freezes it when it loads one.

    Args:
        in_features: Width of the incoming embedding.
        out_features: Width to keep (the Matryoshka dimension).
    """
    weight = torch.eye(out_features, in_features)
    layer = Dense(
        in_features, out_features, bias=False, activation_function=nn.Identity(), init_weight=weight
    )
    return layer.requires_grad_(False)


def is_truncation(module: nn.Module) -> TypeGuard[Dense]:
    """Return True for a bias-free, identity-activated `Dense` whose weight is `eye(out, in)`."""
    if not isinstance(module, Dense) or module.bias or module.out_features > module.in_features:
        return False
    weight = module.linear.weight.detach()
    eye = torch.eye(*weight.shape, dtype=weight.dtype, device=weight.device)
    return isinstance(module.activation_function, nn.Identity) and bool(torch.equal(weight, eye))
