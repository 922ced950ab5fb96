"""A retriever for LangChain: passages by MAR's document encoder, questions by its query encoder.

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
    """The two encoders of a MAR behind LangChain's interface.

    Args:
        mar: A MAR with the routes that will be asked for. A process that only answers questions loads
            `routes="query"` and never opens the document encoder.
    """

    def __init__(self, mar: MAR) -> None:
        self.mar = mar

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of passages, one list of floats each."""
        return self.mar.encode_corpus(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Vector of a question."""
        return self.mar.encode_queries([text])[0].tolist()


def main() -> str:
    """Print and return the prompt that a language model would be given."""
    store = InMemoryVectorStore(MAREmbeddings(MAR.from_pretrained("mar-mini")))
    store.add_documents(
        [Document(page_content=text, metadata={"title": title}) for title, text in PASSAGES.items()]
    )
    retriever = store.as_retriever(search_kwargs={"k": 2})

    def quote(found: list[Document]) -> str:
        return "\n".join(
            f"[{n}] {doc.metadata['title']}：{doc.page_content}" for n, doc in enumerate(found, 1)
        )

    # What stands before the language model in a RAG chain; pipe it into any chat model of LangChain's.
    chain = {"context": retriever | quote, "question": RunnablePassthrough()} | RunnableLambda(
        lambda asked: f"只根据资料回答。\n{asked['context']}\n问题：{asked['question']}"
    )
    prompt = chain.invoke("做胃镜前能喝水吗")
    print(prompt)
    return prompt


if __name__ == "__main__":
    main()
