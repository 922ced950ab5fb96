"""The authors' published weights in MAR's saved form.

The published repositories hold two transformers folders: a BERT-style query encoder (`gte`; older checkpoints
carry the name `new` and ask for remote code) and a Qwen3 document encoder (merged weights, or a LoRA adapter
beside the name of its base). Their code scores differently from the paper: the document vector is normalised
over its full width, then cut to the query encoder's width and not normalised again, and the score is a dot
product. The assembled model does the same. This project has not run the published weights, because no copy
was available; assembly is tested on folders of the same form with random weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mar_st.errors import MarError
from mar_st.files import read_record
from mar_st.model.encoders import load_encoder
from mar_st.model.mar import MAR
from mar_st.model.native_gte import fetch

_QUERY_TYPES = ("new", "gte", "bert", "xlm-roberta", "modernbert")
_DOCUMENT_TYPES = ("qwen3", "qwen2")


def assemble(
    source: str | Path, *, revision: str | None = None, device: str | None = None, **model_kwargs: Any
) -> MAR:
    """Assemble the published two-folder form into a MAR with the authors' own scoring.

    Args:
        source: Hub name (downloaded) or a folder with the same content.
        revision: Revision of the Hub repository.
        device: Device of the model.
        **model_kwargs: Passed to transformers for both encoders (`dtype`, `attn_implementation`, ...).

    Returns:
        A MAR that scores by dot product; documents are cut after normalisation and not renormalised.

    Raises:
        MarError: Not exactly one query encoder and one document encoder were found, or the name cannot be
            downloaded.
    """
    root = fetch(source, revision)
    folders = find_encoders(root)
    query = load_encoder(folders["query"], "query", model_kwargs=model_kwargs)
    document = load_encoder(folders["document"], "document", model_kwargs=model_kwargs)
    document[0].tokenizer.padding_side = "left"
    width = query[-1].get_embedding_dimension()
    return MAR.from_modules(query, document, dim=width, renormalise=False, device=device)


def find_encoders(root: Path) -> dict[str, Path]:
    """Return the folders of the query and the document encoder below `root`, identified by architecture.

    Raises:
        MarError: There is not exactly one of each.
    """
    types = {"query": _QUERY_TYPES, "document": _DOCUMENT_TYPES}
    candidates: dict[str, list[Path]] = {"query": [], "document": []}
    for folder in sorted({path.parent for path in root.rglob("*config.json")}):
        kind = _model_type(folder)
        for side, known in types.items():
            if kind in known:
                candidates[side].append(folder)
    if any(len(folders) != 1 for folders in candidates.values()):
        seen = {side: [str(one.relative_to(root)) for one in found] for side, found in candidates.items()}
        raise MarError(
            f"{root} should hold one query encoder ({', '.join(_QUERY_TYPES)}) and one document encoder "
            f"({', '.join(_DOCUMENT_TYPES)}), each in a folder with config.json; found {seen}. "
            "Build the model from the two folders yourself with MAR.from_encoders(query=..., document=...)."
        )
    return {side: folders[0] for side, folders in candidates.items()}


def _model_type(folder: Path) -> str | None:
    """Return the architecture of a transformers folder; for an adapter, of its base or by the base's name."""
    config = read_record(folder / "config.json") or read_record(folder / "adapter_config.json") or {}
    if "model_type" in config:
        return str(config["model_type"])
    base = str(config.get("base_model_name_or_path") or "")
    if base and (Path(base) / "config.json").is_file():
        return _model_type(Path(base))
    return next((kind for kind in _DOCUMENT_TYPES if kind in base.lower()), None)
