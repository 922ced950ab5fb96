"""Search five documents with the packaged MAR: encode documents once, then load only the query encoder.

python examples/search.py
"""

from __future__ import annotations

from mar_st import MAR

DOCUMENTS = [
    {"title": "高血压的饮食", "text": "高血压患者宜低盐饮食，多吃新鲜蔬菜，少吃腌制品和肥肉，限制饮酒。"},
    {"title": "感冒的用药", "text": "普通感冒以休息、多喝水为主，发热明显时可服用对乙酰氨基酚退热。"},
    {"title": "过敏性鼻炎的护理", "text": "过敏性鼻炎患者应远离尘螨和花粉，每天用生理盐水冲洗鼻腔。"},
    {"title": "胃镜检查前的准备", "text": "胃镜检查前需空腹六至八小时，前一天晚餐清淡，检查前不要喝水。"},
    {"title": "头痛的就诊科室", "text": "反复头痛建议挂神经内科，突发剧烈头痛应立即到急诊。"},
]
QUERIES = ["高血压不能吃什么", "做胃镜前能喝水吗", "脑袋疼挂什么科"]


def main() -> list[str]:
    """Print and return the best title for each query."""
    # Offline: encode the documents once.
    vectors = MAR.from_pretrained("mar-mini", routes="document").encode_corpus(
        DOCUMENTS, convert_to_tensor=True
    )

    # Online: this process never opens the document encoder's files.
    query_side = MAR.from_pretrained("mar-mini", routes="query")
    scores = query_side.similarity(query_side.encode_queries(QUERIES, convert_to_tensor=True), vectors)
    best = [DOCUMENTS[int(row.argmax())]["title"] for row in scores]
    for query, title, row in zip(QUERIES, best, scores, strict=True):
        print(f"{query}\t{title}\t{float(row.max()):.3f}")
    return best


if __name__ == "__main__":
    main()
