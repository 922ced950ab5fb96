"""Store and search MAR's vectors in Milvus: a file (Milvus Lite), or the address of a cluster.

pip install pymilvus milvus-lite
python examples/milvus_vectors.py [milvus.db | http://host:19530]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pymilvus import MilvusClient

from mar_st import MAR

DOCUMENTS = [
    {"title": "高血压的饮食", "text": "宜低盐饮食，多吃新鲜蔬菜，少吃腌制品和肥肉。", "department": "心内科"},
    {"title": "高血压的用药", "text": "降压药要按时服用，不可自行停药。", "department": "心内科"},
    {"title": "胃镜检查前的准备", "text": "检查前需空腹六至八小时，不要喝水。", "department": "消化科"},
    {
        "title": "头痛的就诊科室",
        "text": "反复头痛建议挂神经内科，突发剧烈头痛应立即到急诊。",
        "department": "神经内科",
    },
]


def main(uri: str) -> list[str]:
    """Print and return the titles of the hits, all from one department."""
    client = MilvusClient(uri)
    vectors = MAR.from_pretrained("mar-mini", routes="document").encode_corpus(DOCUMENTS)
    client.drop_collection("medical")
    client.create_collection("medical", dimension=vectors.shape[1], metric_type="COSINE", auto_id=True)
    client.insert(
        "medical", [{**entry, "vector": vector} for entry, vector in zip(DOCUMENTS, vectors, strict=True)]
    )

    online = MAR.from_pretrained("mar-mini", routes="query")  # opens no file of the document encoder
    (hits,) = client.search(
        "medical",
        online.encode_queries(["血压高不能吃啥"]),
        limit=2,
        filter='department == "心内科"',
        output_fields=["title"],
    )
    titles = [hit["entity"]["title"] for hit in hits]
    for hit in hits:
        print(f"{hit['entity']['title']}\t{hit['distance']:.3f}")
    client.close()
    return titles


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1] if len(sys.argv) > 1 else str(Path(scratch) / "milvus.db"))
