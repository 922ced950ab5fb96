"""Make a retrieval task from your own texts and score BM25 on it with mteb's API.

python examples/own_data.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import mteb

from medteb_mteb import task_from_folder

CORPUS = {
    "d1": "感冒多由病毒引起，多休息、多喝水，发热时可服退烧药。",
    "d2": "高血压患者应低盐饮食，规律服药，定期测量血压。",
    "d3": "胃炎患者宜清淡饮食，避免辛辣和饮酒。",
}
QUERIES = {"q1": "感冒发烧怎么办", "q2": "高血压饮食注意什么"}
QRELS = [("q1", "d1", 1), ("q2", "d2", 1)]


def write(folder: Path) -> Path:
    """Write the folder in the Hub layout."""

    def lines(name: str, rows: list[dict[str, str]]) -> None:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")

    (folder / "qrels").mkdir(parents=True)
    lines("corpus.jsonl", [{"_id": key, "title": "", "text": text} for key, text in CORPUS.items()])
    lines("queries.jsonl", [{"_id": key, "text": text} for key, text in QUERIES.items()])
    rows = "".join(f"{query}\t{document}\t{score}\n" for query, document, score in QRELS)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    return folder


def main() -> float:
    """Print and return nDCG@10."""
    with tempfile.TemporaryDirectory() as scratch:
        task = task_from_folder(write(Path(scratch) / "clinic-faq"))
        result = mteb.evaluate(mteb.get_model("bm25-jieba"), task, cache=None)
    score = float(result.task_results[0].get_score())
    print(f"nDCG@10 {score:.4f}")
    return score


if __name__ == "__main__":
    main()
