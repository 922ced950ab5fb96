"""The digest of an encoder's modules, over their settings and weights; imports no torch."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np


class Weight(NamedTuple):
    """One tensor of a module.

    Attributes:
        name: Its name in the module.
        dtype: torch's name of its type, such as `torch.float32`.
        shape: Its shape.
        content: Its bytes, uint8.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    content: np.ndarray


#: Settings and weights of a module; the weights are read one by one.
Described: TypeAlias = "tuple[Mapping[str, Any], Iterator[Weight]]"


def fingerprint(modules: Iterable[Described]) -> str:
    """Return the sha256 over modules: their settings, then every weight in the order of their names.

    Args:
        modules: Settings and sorted weights of each module.
    """
    digest = hashlib.sha256()
    for settings, weights in modules:
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        for weight in weights:
            digest.update(f"{weight.name} {weight.dtype} {weight.shape}\n".encode())
            digest.update(weight.content.data)
    return digest.hexdigest()
