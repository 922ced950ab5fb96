"""Export of a lookup encoder: for numpy, and as a page that searches a small index in the browser."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.modules import Normalize

from mar_st.export.exporting import check_place, packaged_queries
from mar_st.export.formats import GRAPHS, LOOKUPS
from mar_st.export.graph import ExportError
from mar_st.export.measure import TIMED_TEXTS, cosines, timings
from mar_st.export.rows import int8_rows
from mar_st.files import finished_folder
from mar_st.lookup.module import LookupEncoder
from mar_st.model.names import model_source
from mar_st.online.listing import entry_of
from mar_st.online.lookup import DICTIONARY, TABLE_DTYPES, TABLE_FILE, LookupListing, NumpyLookupEncoder
from mar_st.online.torch_encoder import TorchEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Maximum queries whose vectors are compared with the original's.
_MAX_COMPARED = 512


def export_lookup(
    model: str | Path,
    out: str | Path,
    *,
    form: str = "numpy",
    weight_format: str = "int8",
    query: str | None = None,
    vectors: str | Path | None = None,
    documents: str | Path | None = None,
    overwrite: bool = False,
) -> LookupListing:
    """Write a lookup encoder so that it needs no torch, and compare it with the original.

    Args:
        model: A saved MAR or another sentence-transformers folder whose query side is a `LookupEncoder`,
            followed at most by a normalisation.
        out: Folder to write; it is moved into place when it is complete.
        form: `numpy`, or `lookup-json`, which adds documents and a page that searches them in the browser.
        weight_format: Format of the table: `int8` (a scale per feature), `fp16` or `fp32`; the page reads
            only `int8`.
        query: Name of the query encoder in a MAR that has several.
        vectors: For `lookup-json`: document vectors, a folder that `mar encode` wrote.
        documents: For `lookup-json`: the corpus of these vectors; documents without a vector are an error.
        overwrite: Replace an exported encoder in `out`.

    Returns:
        The content of `export.json`.

    Raises:
        ExportError: The query side is not such an encoder, an option does not fit the format, documents and
            vectors do not fit each other or the encoder, or `out` may not be replaced.
        MarError: The model or corpus does not exist.
    """
    _check_options(form, weight_format, vectors, documents)
    check_place(Path(out), overwrite=overwrite)
    encoder = TorchEncoder.open(model_source(model), query=query, device="cpu")
    lookup = _lookup(encoder, str(model))
    with finished_folder(Path(out)) as part:
        (part / DICTIONARY).write_text(lookup.features.to_json(), encoding="utf-8")
        _write_weights(lookup, weight_format, part / TABLE_FILE)
        names = [DICTIONARY, TABLE_FILE]
        more, count = LOOKUPS.classes()[form].write(encoder, part, vectors, documents)
        names += more
        listing = LookupListing(
            model={"source": str(model), "identity": encoder.identity, "query": encoder.query},
            features=len(lookup.features),
            dim=encoder.dim,
            normalised=encoder.normalised,
            similarity=encoder.model.similarity_fn_name,
            lengths=list(lookup.lengths),
            max_length=lookup.max_length,
            precision=weight_format,
            prompts=dict(encoder.prompts),
            files={name: entry_of(part / name) for name in names},
            space=encoder.space,
            documents=count,
        )
        listing.write(part)
        listing = replace(listing, report=_measured(encoder, part))
        listing.write(part)
    return listing


def _check_options(form: str, weight_format: str, vectors: object, documents: object) -> None:
    known = LOOKUPS.classes()
    if form not in known:
        raise ExportError(f"A lookup encoder is exported as {' or '.join(known)}; got {form}.")
    if weight_format not in TABLE_DTYPES:
        raise ExportError(
            f"The weight formats of a table are {', '.join(TABLE_DTYPES)}; got {weight_format}."
        )
    known[form].check(weight_format, vectors, documents)


def _lookup(encoder: TorchEncoder, name: str) -> LookupEncoder:
    first, *rest = encoder.modules
    others = [type(module).__name__ for module in rest if not isinstance(module, Normalize)]
    if not isinstance(first, LookupEncoder) or others or encoder.model.truncate_dim is not None:
        names = ", ".join(type(module).__name__ for module in encoder.modules)
        raise ExportError(
            f"The formats {' and '.join(LOOKUPS.classes())} are for a LookupEncoder with at most a Normalize "
            f"after it; the query side of {name} is made of {names}. Name a lookup encoder with "
            f"--query-encoder, or export this one as {', '.join(GRAPHS.classes())}."
        )
    return first


def _write_weights(lookup: LookupEncoder, precision: str, path: Path) -> None:
    """Write `lookup.bin`, see `mar_st.online.lookup`.

    Raises:
        ExportError: A value is not finite, or too large for the precision.
    """
    table, weights, bias = (
        tensor.detach().float().cpu().numpy()
        for tensor in (lookup.embedding.weight, lookup.weight, lookup.bias)
    )
    scales = np.ones(len(table), dtype=np.float32)
    if precision == "int8":
        table, scales = int8_rows(table)
    with np.errstate(over="ignore"):
        stored = table.astype(TABLE_DTYPES[precision])
    singles = np.concatenate([weights, bias, scales]).astype("<f4")
    if not (np.isfinite(singles).all() and (precision == "int8" or np.isfinite(stored).all())):
        raise ExportError(f"The encoder holds values that are not finite, or too large for {precision}.")
    with path.open("wb") as stream:
        stream.write(singles.tobytes())
        stream.write(stored.tobytes())


def _measured(encoder: TorchEncoder, part: Path) -> dict[str, Any]:
    """Return cosines to the original's vectors, and microseconds of a query, texts one by one."""
    texts: Sequence[str] = packaged_queries()[:_MAX_COMPARED]
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
        "bytes": sum(entry["bytes"] for entry in LookupListing.read(part).files.values()),
    }
