"""A sentence-transformers model without routes, whose modules may be those of this package."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer

from mar_st.modules import OWN_MODULES


class PlainModel(SentenceTransformer):
    """Loads as `SentenceTransformer`, without `trust_remote_code` for modules of this package."""

    _module_classes = OWN_MODULES
