"""A LlamaIndex retriever that encodes nodes and questions with the two encoders of a MAR.

pip install llama-index-core
python examples/llamaindex_retriever.py
"""

from __future__ import annotations

from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
from pydantic import PrivateAttr

from mar_st import MAR

PASSAGES = {
    "高血压的饮食": "高血压患者宜低盐饮食，多吃新鲜蔬菜，少吃腌制品和肥肉，限制饮酒。",
    "感冒的用药": "普通感冒以休息、多喝水为主，发热明显时可服用对乙酰氨基酚退热。",
    "胃镜检查前的准备": "胃镜检查前需空腹六至八小时，前一天晚餐清淡，检查前不要喝水。",
    "头痛的就诊科室": "反复头痛建议挂神经内科，突发剧烈头痛应立即到急诊。",
}


class MAREmbedding(BaseEmbedding):
    """LlamaIndex embedding with the two encoders of a MAR.

    Args:
        mar: A MAR with the routes that are needed.
        **options: Options of `BaseEmbedding`.
    """

    _mar: MAR = PrivateAttr()

    def __init__(self, mar: MAR, **options: Any) -> None:
        super().__init__(model_name="mar", **options)
        self._mar = mar

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._mar.encode_queries([query])[0].tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._mar.encode_corpus(texts).tolist()


def main() -> list[tuple[str, float]]:
    """Print and return the titles found for a question, with their scores."""
    nodes = [
        TextNode(text=text, metadata={"title": title}, excluded_embed_metadata_keys=["title"])
        for title, text in PASSAGES.items()
    ]
    index = VectorStoreIndex(nodes, embed_model=MAREmbedding(MAR.from_pretrained("mar-mini")))
    hits = index.as_retriever(similarity_top_k=2).retrieve("做胃镜前能喝水吗")
    titles = [(hit.node.metadata["title"], hit.score or 0.0) for hit in hits]
    for title, score in titles:
        print(f"{title}\t{score:.3f}")
    return titles


if __name__ == "__main__":
    main()
