"""The same index in Milvus: Milvus Lite (a path) on one machine, a server or cluster by its address.

A collection holds a row per document: `id`, `vector`, `title`, `text`, and a nullable field for each metadata
field, `metadata_0`, `metadata_1`, ... (Milvus allows fewer names than metadata have). A property
describes the collection (model, space, names and types, search settings). Words (BM25) are not indexed there,
so hybrid search needs an index folder.
"""

from mar_st.index.milvus.build import build_milvus
from mar_st.index.milvus.collection import MilvusIndex

__all__ = ["MilvusIndex", "build_milvus"]
