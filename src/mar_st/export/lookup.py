"""Export of a lookup encoder for numpy: the table in int8, with a scale per feature."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.export.measure import measure
from mar_st.online.listing import entry_of
from mar_st.online.lookup import DICTIONARY, TABLE_FILE, LookupListing, NumpyLookupEncoder

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.lookup.module import LookupEncoder
    from mar_st.online.torch_encoder import TorchEncoder


def write_lookup(
    encoder: TorchEncoder, source: str, part: Path, texts: list[str], original: np.ndarray
) -> LookupListing:
    """Write a lookup encoder so that it needs no torch, and measure it.

    Args:
        encoder: The encoder; it starts with a `LookupEncoder`.
        source: Name of the model, for the listing.
        part: An empty folder.
        texts: Queries to measure on.
        original: Their vectors.

    Raises:
        MarError: Another module than a Normalize follows, or a value is not finite.
    """
    first: Any
    first, *rest = encoder.modules
    if not all(isinstance(module, Normalize) for module in rest):
        raise MarError(
            f"{[type(module).__name__ for module in rest]} after a LookupEncoder are not exported."
        )
    (part / DICTIONARY).write_text(first.features.to_json(), encoding="utf-8")
    _write_table(first, part / TABLE_FILE)
    listing = LookupListing(
        model={"source": source, "identity": encoder.identity, "query": encoder.query},
        features=len(first.features),
        dim=encoder.dim,
        normalised=encoder.normalised,
        similarity=encoder.model.similarity_fn_name,
        lengths=first.lengths,
        max_length=first.max_seq_length,
        prompts=dict(encoder.prompts),
        files={path.name: entry_of(path) for path in sorted(part.iterdir())},
        space=encoder.space,
    )
    listing.write(part)
    report = measure(NumpyLookupEncoder.open(part), texts, original)
    report["bytes"] = sum(entry["bytes"] for entry in listing.files.values())
    listing = replace(listing, report=report)
    listing.write(part)
    return listing


def _write_table(lookup: LookupEncoder, path: Path) -> None:
    """Write `lookup.bin`, see `mar_st.online.lookup`.

    Raises:
        MarError: A value is not finite.
    """
    table, weights, bias = (
        tensor.detach().float().cpu().numpy()
        for tensor in (lookup.embedding.weight, lookup.weight, lookup.bias)
    )
    largest = np.abs(table).max(axis=1)
    scales = np.maximum(largest / 127, np.finfo(np.float32).tiny).astype(np.float32)
    singles = np.concatenate([weights, bias, scales]).astype("<f4")
    if not (np.isfinite(singles).all() and np.isfinite(table).all()):
        raise MarError("The encoder holds values that are not finite.")
    path.write_bytes(singles.tobytes() + np.rint(table / scales[:, None]).astype(np.int8).tobytes())
