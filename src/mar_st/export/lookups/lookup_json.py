"""Format `lookup-json`: the encoder with documents, and a page that searches them in the browser."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mar_st.encode.corpus import read_corpus
from mar_st.encode.folder import VectorFolder
from mar_st.export.formats import LookupFormat, lookup_format
from mar_st.export.graph import ExportError
from mar_st.export.rows import int8_rows

if TYPE_CHECKING:
    from mar_st.online.torch_encoder import TorchEncoder

#: Files of the page, and of its documents.
PAGE = ("search.html", "search.js", "search.css")
TEXTS, VECTORS = "documents.json", "documents.bin"


@lookup_format("lookup-json", after="numpy")
class PageFormat(LookupFormat):
    """Documents with their vectors, and a page that reads the table in int8."""

    @staticmethod
    def check(weight_format: str, vectors: object, documents: object) -> None:
        """Make sure that there is something to search, and a table that the page can read."""
        if vectors is None or documents is None:
            raise ExportError(
                "A page needs documents to search: give --documents CORPUS and --vectors FOLDER, which `mar "
                "encode MODEL CORPUS FOLDER` writes."
            )
        if weight_format != "int8":
            raise ExportError(f"The page reads int8; got weight format {weight_format}.")

    @staticmethod
    def write(
        encoder: TorchEncoder, part: Path, vectors: str | Path | None, documents: str | Path | None
    ) -> tuple[list[str], int]:
        """Write the documents, their vectors and the page."""
        count = _write_documents(encoder, Path(str(vectors)), str(documents), part)
        page = files("mar_st.export") / "page"
        for name in PAGE:
            (part / name).write_bytes((page / name).read_bytes())
        return [TEXTS, VECTORS, *PAGE], count


def _write_documents(encoder: TorchEncoder, vectors: Path, documents: str | Path, part: Path) -> int:
    """Write titles and texts, and the vectors as scales float32 and a table int8; return their number."""
    folder = VectorFolder.open(vectors)
    folder.verify()
    if folder.dim != encoder.dim:
        raise ExportError(
            f"The vectors in {vectors} have {folder.dim} dimensions, the encoder's {encoder.dim}. Encode the "
            "documents with the model that the encoder belongs to."
        )
    if folder.space and encoder.space and folder.space != encoder.space:
        raise ExportError(
            f"The vectors in {vectors} belong to another document space ({folder.space[:12]}) than the "
            f"encoder ({encoder.space[:12]}). Encode the documents with the model that it belongs to."
        )
    entries = list(read_corpus(documents))
    places = {key: row for row, key in enumerate(folder.ids.to_pylist())}
    missing = [entry.id for entry in entries if entry.id not in places]
    if missing or not entries:
        first = f" (the first is {missing[0]!r})" if missing else ""
        raise ExportError(
            f"{len(missing)} of {len(entries)} documents of {documents} have no vector in {vectors}{first}. "
            "Encode this corpus with `mar encode`."
        )
    stored = folder[[places[entry.id] for entry in entries]].astype(np.float32)
    if encoder.model.similarity_fn_name != "dot":
        stored = stored / np.maximum(np.linalg.norm(stored, axis=1, keepdims=True), 1e-12)
    table, scales = int8_rows(stored)
    (part / VECTORS).write_bytes(scales.astype("<f4").tobytes() + table.tobytes())
    rows = [{"id": entry.id, "title": entry.title, "text": entry.text} for entry in entries]
    (part / TEXTS).write_text(json.dumps(rows), encoding="ascii")
    return len(rows)
