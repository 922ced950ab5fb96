"""A LangChain retriever that encodes passages and questions with the two encoders of a MAR.

pip install langchain-core
python examples/langchain_retriever.py
"""

from __future__ import annotations

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from mar_st import MAR

PASSAGES = {
    "高血压的饮食": "高血压患者宜低盐饮食，多吃新鲜蔬菜，少吃腌制品和肥肉，限制饮酒。",
    "感冒的用药": "普通感冒以休息、多喝水为主，发热明显时可服用对乙酰氨基酚退热。",
    "胃镜检查前的准备": "胃镜检查前需空腹六至八小时，前一天晚餐清淡，检查前不要喝水。",
    "头痛的就诊科室": "反复头痛建议挂神经内科，突发剧烈头痛应立即到急诊。",
}


class MAREmbeddings(Embeddings):
    """LangChain embeddings with the two encoders of a MAR.

    Args:
        mar: A MAR with the routes that are needed. A process that only answers questions loads
            `routes="query"` and never opens the document encoder.
    """

    def __init__(self, mar: MAR) -> None:
        self.mar = mar

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of passages, one list of floats each."""
        return self.mar.encode_corpus(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return self.mar.encode_queries([text])[0].tolist()


def main() -> str:
    """Print and return the prompt for a language model."""
    store = InMemoryVectorStore(MAREmbeddings(MAR.from_pretrained("mar-mini")))
    store.add_documents(
        [Document(page_content=text, metadata={"title": title}) for title, text in PASSAGES.items()]
    )
    retriever = store.as_retriever(search_kwargs={"k": 2})

    def quote(documents: list[Document]) -> str:
        return "\n".join(
            f"[{n}] {doc.metadata['title']}：{doc.page_content}" for n, doc in enumerate(documents, 1)
        )

    # The part of a RAG chain before the language model; pipe it into any LangChain chat model.
    chain = {"context": retriever | quote, "question": RunnablePassthrough()} | RunnableLambda(
        lambda asked: f"只根据资料回答。\n{asked['context']}\n问题：{asked['question']}"
    )
    prompt = chain.invoke("做胃镜前能喝水吗")
    print(prompt)
    return prompt


if __name__ == "__main__":
    main()
