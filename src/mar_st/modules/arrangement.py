"""Arrangement of a MAR's modules: encoders in a first `Router`, the following modules in a second one.

sentence-transformers casts its top-level modules to the dtype of the model's first parameter, but not modules
inside the first `Router`. So if a document encoder is stored in bfloat16, the layers behind it must be
outside that router, and it must be the router's first route. A query encoder's own linear layer stays inside
the router: the two are trained together in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers.base.modules import Dense, Normalize, Router

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn


def route_chain(modules: Iterable[nn.Module], name: str) -> list[nn.Module]:
    """Return the modules that texts of a route go through, in order.

    Args:
        modules: Top-level modules of a model; a `Router` among them is replaced by its route of that name, or
            by its default route.
        name: Name of the route.

    Raises:
        KeyError: A router has neither this route nor a default route.
    """
    chain: list[nn.Module] = []
    for module in modules:
        if isinstance(module, Router):
            router: Any = module
            known = name if name in router.sub_modules else router.default_route
            if known is None:
                raise KeyError(name)
            chain.extend(router.sub_modules[known])
        else:
            chain.append(module)
    return chain


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
    modules: list[nn.Module] = [_router(heads)]
    if any(isinstance(module, Dense) for tail in tails.values() for module in tail):
        modules.append(_router(tails))
    elif all(len(tail) == 1 for tail in tails.values()):
        modules.append(Normalize())  # what all routes share
    else:
        modules = [_router(ordered)]
    return modules


def _start_of_tail(chain: Sequence[nn.Module], *, keep_dense: bool) -> int:
    """Return the position of the first module behind the encoder proper."""
    for index, module in enumerate(chain):
        if index and (isinstance(module, Normalize) or (isinstance(module, Dense) and not keep_dense)):
            return index
    return len(chain)


def _router(chains: Mapping[str, Sequence[nn.Module]]) -> Router:
    # Without a default route, `encode` without a task raises an error that names the routes; otherwise
    # wrappers without roles would silently encode documents with the query encoder.
    modules: Any = {name: list(chain) for name, chain in chains.items()}
    return Router(modules, default_route=None, allow_empty_key=False)
