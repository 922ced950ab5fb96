"""Export of a lookup encoder for numpy."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.export.exporting import check_place, packaged_queries
from mar_st.export.measure import TIMED_TEXTS, cosines, timings
from mar_st.files import finished_folder
from mar_st.lookup.module import LookupEncoder
from mar_st.model.names import model_source
from mar_st.online.listing import entry_of
from mar_st.online.lookup import DICTIONARY, TABLE_DTYPES, TABLE_FILE, LookupListing, NumpyLookupEncoder
from mar_st.online.torch_encoder import TorchEncoder

if TYPE_CHECKING:
    from pathlib import Path

    from mar_st.export import ExportSettings


def export_lookup(settings: ExportSettings) -> LookupListing:
    """Write a lookup encoder so that it needs no torch, and compare it with the original.

    The weight format of the table is `int8` (a scale per feature), `fp16` or `fp32`.

    Raises:
        MarError: The query side is not such an encoder, an option does not fit, the model does not exist, or
            `out` may not be replaced.
    """
    precision: Any = settings.weight_format[0]
    asked: list[Any] = [settings.format, settings.weight_format]
    if [len(one) for one in asked] != [1, 1] or precision not in TABLE_DTYPES:
        raise MarError(
            "A lookup encoder is exported in the format numpy alone, in one weight format of "
            f"{', '.join(TABLE_DTYPES)}; got {asked}."
        )
    check_place(settings.out, overwrite=settings.overwrite)
    encoder = TorchEncoder.open(model_source(settings.model), query=settings.query_encoder, device="cpu")
    first, *rest = encoder.modules
    plain = encoder.model.truncate_dim is None and all(isinstance(module, Normalize) for module in rest)
    if not isinstance(first, LookupEncoder) or not plain:
        raise MarError(
            f"numpy is a format of a LookupEncoder with at most a Normalize after it; the query side of "
            f"{settings.model} is {[type(module).__name__ for module in encoder.modules]}. Name a lookup "
            "encoder with --query-encoder, or choose another format."
        )
    with finished_folder(settings.out) as part:
        (part / DICTIONARY).write_text(first.features.to_json(), encoding="utf-8")
        _write_table(first, precision, part / TABLE_FILE)
        listing = LookupListing(
            model={"source": settings.model, "identity": encoder.identity, "query": encoder.query},
            features=len(first.features),
            dim=encoder.dim,
            normalised=encoder.normalised,
            similarity=encoder.model.similarity_fn_name,
            lengths=first.lengths,
            max_length=first.max_seq_length,
            precision=precision,
            prompts=dict(encoder.prompts),
            files={path.name: entry_of(path) for path in sorted(part.iterdir())},
            space=encoder.space,
        )
        listing.write(part)
        listing = replace(listing, report=_measured(encoder, part, listing))
        listing.write(part)
    return listing


def _write_table(lookup: LookupEncoder, precision: str, path: Path) -> None:
    """Write `lookup.bin`, see `mar_st.online.lookup`.

    Raises:
        MarError: A value is not finite, or too large for the precision.
    """
    table, weights, bias = (
        tensor.detach().float().cpu().numpy()
        for tensor in (lookup.embedding.weight, lookup.weight, lookup.bias)
    )
    scales = np.ones(len(table), dtype=np.float32)
    if precision == "int8":
        largest = np.abs(table).max(axis=1)
        scales = np.maximum(largest / 127, np.finfo(np.float32).tiny).astype(np.float32)
        table = np.rint(table / scales[:, None])
    with np.errstate(over="ignore"):
        stored = table.astype(TABLE_DTYPES[precision])
    singles = np.concatenate([weights, bias, scales]).astype("<f4")
    if not (np.isfinite(singles).all() and np.isfinite(stored).all()):
        raise MarError(f"The encoder holds values that are not finite, or too large for {precision}.")
    path.write_bytes(singles.tobytes() + stored.tobytes())


def _measured(encoder: TorchEncoder, part: Path, listing: LookupListing) -> dict[str, Any]:
    """Return cosines to the original's vectors, and microseconds of a query, texts one by one."""
    texts = packaged_queries()
    exported = NumpyLookupEncoder.open(part)
    close = cosines(encoder.encode(texts), exported.encode(texts))
    seconds = timings(exported.encode, texts[:TIMED_TEXTS])
    started = time.perf_counter()
    exported.encode(texts)
    return {
        "cosine_min": round(float(close.min()), 6),
        "cosine_mean": round(float(close.mean()), 6),
        "p50_us": round(float(np.median(seconds)) * 1e6, 1),
        "per_second": round(len(texts) / (time.perf_counter() - started), 1),
        "bytes": sum(entry["bytes"] for entry in listing.files.values()),
    }
