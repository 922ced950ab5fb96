"""Files that an alignment writes beside the weights: settings of an unfinished run, manifest, model card."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from mar_st.files import JsonError, read_json, write_text
from mar_st.files.locks import clear
from mar_st.modules.layout import loading_call
from mar_st.spaces.space import SpaceError
from mar_st.spaces.students import DONE_FILE
from mar_st.teachers.vectors import text_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MANIFEST = "space.json"
FORMAT = 1


def claim(work: Path, settings: dict[str, Any]) -> None:
    """Create the working folder of a run, or resume the unfinished run in it.

    Raises:
        SpaceError: The folder holds trained weights of other, or of unknown, texts or settings.
    """
    marker = work / "settings.json"
    if _recorded(marker) != settings:
        if any(work.glob("*/checkpoints/checkpoint-*")) or any(work.glob(f"*/{DONE_FILE}")):
            raise SpaceError(
                f"{work} holds an unfinished alignment with other texts or settings. Finish it with those, "
                "delete the folder, or choose another --out."
            )
        if marker.is_file():
            clear(work)  # nothing was trained yet
    work.mkdir(parents=True, exist_ok=True)
    write_text(marker, json.dumps(settings, ensure_ascii=False, indent=1))


def _recorded(marker: Path) -> Any:
    """Return the settings that a run has recorded, `None` if there are none or the file is damaged."""
    try:
        return read_json(marker) if marker.is_file() else None
    except JsonError:
        return None


def digest(texts: Sequence[str]) -> str:
    """Return the digest of texts in their order."""
    return hashlib.sha256(text_keys(texts).tobytes()).hexdigest()


def summary(report: Mapping[str, Any]) -> str:
    """Return the agreement of a student with its teacher as a line of text."""
    names = {"cosine_query": "cosine of queries", "cosine_document": "cosine of documents",
             "overlap_at_10": "overlap@10"}  # fmt: skip
    return ", ".join(f"{text} {report[name]:.3f}" for name, text in names.items() if name in report) or (
        "too few texts to hold some out"
    )


def card(
    name: str, folder: Path, manifest: Mapping[str, Any], *, whole: bool, extra: Sequence[str] = ()
) -> str:
    """Return the model card of a result.

    Args:
        name: Name of the folder.
        folder: The folder, complete but for its card.
        manifest: The content of `space.json`.
        whole: Whether the folder holds the teacher's document encoder.
        extra: Additional lines.
    """
    last = list(manifest["agreement"].items())[-1]
    documents = (
        "documents = model.encode_document(texts)"
        if whole
        else "# documents: the vectors that are stored already"
    )
    cut = manifest["dim"] < manifest["full_dim"]
    return "\n".join(
        [
            "---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity",
            f"tags: [mar, {'asymmetric' if whole else 'query-encoder'}]", "---", "",
            f"# {name}", "",
            f"A query encoder for the document space of `{manifest['settings']['teacher']}`: "
            f"{manifest['dim']} "
            + (f"of {manifest['full_dim']} " if cut else "")
            + f"dimensions, compared by {manifest['similarity']}.", "",
            "```python", "from sentence_transformers import SentenceTransformer", "",
            f"model = {loading_call(name, folder)}  # the folder", "queries = model.encode_query(texts)",
            documents, "```", "",
            f"On held-out texts ({last[0]}): {summary(last[1])}. Details: `{MANIFEST}`.", "", *extra,
        ]
    )  # fmt: skip
