"""Export of a lookup encoder: for numpy, and as a page that searches a small index in the browser."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.modules import Normalize

from mar_st.errors import MarError
from mar_st.export.exporting import check_place, packaged_queries
from mar_st.export.judge import stored_vectors
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

#: Files of the page, and of its documents.
PAGE = ("search.html", "search.js", "search.css")
TEXTS, VECTORS = "documents.json", "documents.bin"


def export_lookup(settings: ExportSettings) -> LookupListing:
    """Write a lookup encoder so that it needs no torch, and compare it with the original.

    The weight format of the table is `int8` (a scale per feature), `fp16` or `fp32`; the page reads `int8`.

    Raises:
        MarError: The query side is not such an encoder, an option does not fit the format, the model or
            corpus does not exist, documents and vectors do not fit each other or the encoder, or `out` may
            not be replaced.
    """
    (form, *more), (asked, *others) = settings.format, settings.weight_format
    precision: Any = asked
    page = form == "lookup-json"
    if more or others or precision not in TABLE_DTYPES or settings.task is not None:
        raise MarError(
            f"A lookup encoder is exported in one format, numpy or lookup-json, and one weight format of "
            f"{', '.join(TABLE_DTYPES)}, without --task."
        )
    if page != (settings.vectors is not None and settings.documents is not None):
        raise MarError(
            "A page (lookup-json), and only that, needs documents to search: --documents CORPUS and "
            "--vectors FOLDER, which `mar encode MODEL CORPUS FOLDER` writes."
        )
    if page and precision != "int8":
        raise MarError(f"The page reads int8; got weight format {precision}.")
    check_place(settings.out, overwrite=settings.overwrite)
    encoder = TorchEncoder.open(model_source(settings.model), query=settings.query_encoder, device="cpu")
    first, *rest = encoder.modules
    plain = encoder.model.truncate_dim is None and all(isinstance(module, Normalize) for module in rest)
    if not isinstance(first, LookupEncoder) or not plain:
        raise MarError(
            f"{form} is a format of a LookupEncoder with at most a Normalize after it; the query side of "
            f"{settings.model} is {[type(module).__name__ for module in encoder.modules]}. Name a lookup "
            "encoder with --query-encoder, or choose another format."
        )
    with finished_folder(settings.out) as part:
        (part / DICTIONARY).write_text(first.features.to_json(), encoding="utf-8")
        _write_table(first, precision, part / TABLE_FILE)
        count = _write_page(encoder, settings, part) if page else 0
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
            documents=count,
        )
        listing.write(part)
        listing = replace(listing, report=_measured(encoder, part, listing))
        listing.write(part)
    return listing


def int8_rows(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in int8, and the scale of each row."""
    scales = np.maximum(np.abs(vectors).max(axis=1) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


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
        table, scales = int8_rows(table)
    with np.errstate(over="ignore"):
        stored = table.astype(TABLE_DTYPES[precision])
    singles = np.concatenate([weights, bias, scales]).astype("<f4")
    if not (np.isfinite(singles).all() and np.isfinite(stored).all()):
        raise MarError(f"The encoder holds values that are not finite, or too large for {precision}.")
    path.write_bytes(singles.tobytes() + stored.tobytes())


def _write_page(encoder: TorchEncoder, settings: ExportSettings, part: Path) -> int:
    """Write the page, titles and texts, and their vectors as scales float32 and a table int8.

    Returns:
        The number of documents.
    """
    from mar_st.encode.corpus import read_corpus  # lazy: pyarrow
    from mar_st.encode.folder import VectorFolder  # lazy: pyarrow

    folder = VectorFolder.open(str(settings.vectors))
    if folder.dim != encoder.dim or (folder.space and encoder.space and folder.space != encoder.space):
        raise MarError(
            f"The vectors in {settings.vectors} have {folder.dim} dimensions of the document space "
            f"{folder.space}, the encoder's {encoder.dim} of {encoder.space}. Encode them with the model "
            "that the encoder belongs to."
        )
    entries = list(read_corpus(str(settings.documents)))
    stored = stored_vectors(str(settings.vectors), [entry.id for entry in entries])
    if encoder.model.similarity_fn_name != "dot":
        stored = stored / np.maximum(np.linalg.norm(stored, axis=1, keepdims=True), 1e-12)
    table, scales = int8_rows(stored)
    (part / VECTORS).write_bytes(scales.astype("<f4").tobytes() + table.tobytes())
    rows = [{"id": entry.id, "title": entry.title, "text": entry.text} for entry in entries]
    (part / TEXTS).write_text(json.dumps(rows), encoding="ascii")
    for name in PAGE:
        (part / name).write_bytes((files("mar_st.export") / "page" / name).read_bytes())
    return len(rows)


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
