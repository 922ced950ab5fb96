"""Measure the baselines that the cards report: BM25 for retrieval and reranking, bigram overlap for STS.

``python -m tools.mini.measure OUT`` reads a written edition and prints JSON; with ``--record`` it
stores the numbers in ``measured.json``, from which the next build writes the cards.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import correlation, fmean
from typing import TYPE_CHECKING, Any

from mar_st.text.words import BM25Index, segmenter
from tools.mini.negatives import bigram_cosine, bigrams

if TYPE_CHECKING:
    from collections.abc import Callable


def nonblank_jieba_words(text: str) -> list[str]:
    """Return the words of a text by jieba, without white space."""
    return [word for word in segmenter().cut(text) if word.strip()]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _qrels(folder: Path) -> dict[str, set[str]]:
    relevant: dict[str, set[str]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]:
        query_id, doc_id, _ = line.split("\t")
        relevant.setdefault(query_id, set()).add(doc_id)
    return relevant


def bm25_scores(folder: Path, tokenise: Callable[[str], list[str]]) -> dict[str, list[tuple[str, float]]]:
    """Return every document of a task folder with its BM25 score, best first, for every query."""
    corpus = _rows(folder / "corpus.jsonl")
    ids = [row["_id"] for row in corpus]
    index = BM25Index([tokenise(f"{row['title']} {row['text']}") for row in corpus])
    ranked = {}
    for row in _rows(folder / "queries.jsonl"):
        scores = index.scores(tokenise(row["text"])).tolist()
        ranked[row["_id"]] = sorted(zip(ids, scores, strict=True), key=lambda item: (-item[1], item[0]))
    return ranked


def ndcg_at_10(ranked: list[str], relevant: set[str]) -> float:
    """Return nDCG@10 with binary gains."""
    gain = sum(1 / math.log2(rank + 2) for rank, doc_id in enumerate(ranked[:10]) if doc_id in relevant)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(10, len(relevant))))


def average_precision(ranked: list[str], relevant: set[str]) -> float:
    """Return the average precision of the whole list."""
    hits, total = 0, 0.0
    for rank, doc_id in enumerate(ranked, 1):
        if doc_id in relevant:
            hits += 1
            total += hits / rank
    return total / len(relevant)


def measure_retrieval(folder: Path, tokenise: Callable[[str], list[str]]) -> float:
    """Return nDCG@10 of BM25."""
    relevant = _qrels(folder)
    ranked = {q: [doc_id for doc_id, _ in row[:10]] for q, row in bm25_scores(folder, tokenise).items()}
    return fmean(ndcg_at_10(ranked[q], relevant[q]) for q in ranked)


def measure_reranking(folder: Path, tokenise: Callable[[str], list[str]]) -> float:
    """Return MAP of BM25 over the candidates; document frequencies come from the task's corpus."""
    relevant = _qrels(folder)
    lists = {row["query-id"]: set(row["corpus-ids"]) for row in _rows(folder / "top_ranked.jsonl")}
    scored = bm25_scores(folder, tokenise)
    ranked = {q: [doc_id for doc_id, _ in row if doc_id in lists[q]] for q, row in scored.items()}
    return fmean(average_precision(ranked[q], relevant[q]) for q in ranked)


def measure_sts(folder: Path) -> float:
    """Return the Pearson correlation of labels and cosines of character bigram counts."""
    pairs = _rows(folder / "test.jsonl")
    overlap = [bigram_cosine(pair["sentence1"], pair["sentence2"]) for pair in pairs]
    return correlation(overlap, [pair["score"] for pair in pairs])


def measure(out: Path) -> dict[str, dict[str, float]]:
    """Return the baselines of the three tasks below ``out``, rounded to four places."""
    tokenisers = {"jieba words": nonblank_jieba_words, "character bigrams": bigrams}
    return {
        "MedTEBRetrieval": {
            f"nDCG@10 of BM25 over {name}": round(measure_retrieval(out / "MedTEBRetrieval", tokenise), 4)
            for name, tokenise in tokenisers.items()
        },
        "MedTEBReranking": {
            f"MAP of BM25 over {name}": round(measure_reranking(out / "MedTEBReranking", tokenise), 4)
            for name, tokenise in tokenisers.items()
        },
        "MedTEBSTS": {
            "Pearson of the cosine of character bigram counts": round(measure_sts(out / "MedTEBSTS"), 4)
        },
    }


def main() -> None:
    """Print the baselines of the edition below the folder named on the command line."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--record"]
    if len(arguments) != 1:
        sys.exit("usage: python -m tools.mini.measure OUT [--record]")
    text = json.dumps(measure(Path(arguments[0])), ensure_ascii=False, indent=2) + "\n"
    if "--record" in sys.argv:
        Path(__file__).with_name("measured.json").write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
