"""The same index in Milvus: Milvus Lite (a path) on one machine, a server or cluster by its address.

A collection holds a row per document: `id`, `vector`, `title`, `text`, and a nullable field for each metadata
field, `metadata_0`, `metadata_1`, ... (names of Milvus are narrower than those of metadata). What the
collection is (model, space, names and types, settings of searching) stands in a property. Words (BM25) are
not indexed there, so hybrid search needs an index folder.
"""

from mar_st.index.milvus.build import build_milvus
from mar_st.index.milvus.collection import MilvusIndex

__all__ = ["MilvusIndex", "build_milvus"]
