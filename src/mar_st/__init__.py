"""MAR: asymmetric text retrieval for sentence-transformers.

A small query encoder answers online, a large document encoder works offline; both share one vector space.
Names are imported on first use, so that `import mar_st` and `mar --help` stay cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mar_st.encode.encoding import encode_corpus as encode_corpus
    from mar_st.encode.folder import VectorFolder as VectorFolder
    from mar_st.encode.settings import EncodeSettings as EncodeSettings
    from mar_st.errors import MarError as MarError
    from mar_st.index.base import Index as Index
    from mar_st.index.build import build_index as build_index
    from mar_st.index.searcher import Searcher as Searcher
    from mar_st.lookup.fit import fit_lookup as fit_lookup
    from mar_st.mining.miner import mine as mine
    from mar_st.model.family import add_query_encoder as add_query_encoder
    from mar_st.model.family import query_encoders as query_encoders
    from mar_st.model.mar import MAR as MAR
    from mar_st.model.published import assemble as assemble
    from mar_st.online.batcher import MicroBatcher as MicroBatcher
    from mar_st.online.encoders import load_query_encoder as load_query_encoder
    from mar_st.recipes.load import load_recipe as load_recipe
    from mar_st.recipes.schema import Recipe as Recipe
    from mar_st.runs.train import train as train

    __version__: str

_HOMES = {
    "MAR": "mar_st.model.mar",
    "EncodeSettings": "mar_st.encode.settings",
    "Index": "mar_st.index.base",
    "MarError": "mar_st.errors",
    "MicroBatcher": "mar_st.online.batcher",
    "Recipe": "mar_st.recipes.schema",
    "Searcher": "mar_st.index.searcher",
    "VectorFolder": "mar_st.encode.folder",
    "add_query_encoder": "mar_st.model.family",
    "assemble": "mar_st.model.published",
    "build_index": "mar_st.index.build",
    "encode_corpus": "mar_st.encode.encoding",
    "fit_lookup": "mar_st.lookup.fit",
    "load_query_encoder": "mar_st.online.encoders",
    "load_recipe": "mar_st.recipes.load",
    "mine": "mar_st.mining.miner",
    "query_encoders": "mar_st.model.family",
    "train": "mar_st.runs.train",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # lazy: importlib.metadata

        return version("medteb")
    if name not in _HOMES:
        raise AttributeError(f"module 'mar_st' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
