"""Compares `medteb build nano` with HAKARI-Bench's own builder on the same retrieval folders.

    git clone https://github.com/hakari-bench/hakari-bench
    python benchmarks/nano.py hakari-bench FOLDER...

Queries, documents, qrels, hybrid lists, safeguards and scores must be equal; BM25's lists are equal but for
ties, which bm25s leaves open. Measured with commit 217c872.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
from pathlib import Path

from medteb_mteb.curation.nano.candidates import hybrid_lists
from medteb_mteb.curation.nano.lexical import bm25_lists
from medteb_mteb.curation.nano.sample import read_source, sample
from medteb_mteb.nano.measures import score_rankings

NAMES = {
    "ndcg_at_10": "ndcg@10",
    "hit_at_1": "acc@1",
    "hit_at_10": "acc@10",
    "hit_at_100": "acc@100",
    "recall_macro_at_10": "recall@10",
    "recall_macro_at_100": "recall@100",
    "mrr_at_10": "mrr@10",
    "map_capped_at_100": "map@100",
}


def drawn_by_theirs(builder, source, documents):
    """Their queries, documents and qrels."""
    queries = builder.normalize_query_rows([{"_id": a, "text": b} for a, b in source.queries])
    positives, negatives = builder.normalize_qrels_rows(
        [{"query-id": a, "corpus-id": b, "score": c} for a, b, c in source.qrels]
    )
    queries, qrels, _ = builder._select_queries(queries=queries, positive_qrels=positives, query_limit=200)
    corpus, _ = builder._select_corpus(
        corpus_rows=[{"_id": a, "text": b} for a, b in source.corpus],
        selected_qrels=qrels,
        non_positive_qrels=negatives,
        doc_limit=documents,
    )
    texts = {row["_id"]: row["text"] for row in corpus}
    qrels = [row for row in qrels if row["corpus-id"] in texts]
    kept = {row["query-id"] for row in qrels}
    relevant: dict[str, list[str]] = {}
    for row in builder._cap_qrels_per_query(qrels, limit=100)[0]:
        relevant.setdefault(row["query-id"], []).append(row["corpus-id"])
    return {row["_id"]: row["text"] for row in queries if row["_id"] in kept}, texts, relevant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hakari", type=Path, help="checkout of hakari-bench")
    parser.add_argument("folders", type=Path, nargs="+", help="retrieval folders with Chinese texts")
    given = parser.parse_args()
    sys.path.insert(0, str(given.hakari))
    from hakari_bench import bm25, metrics, nano_dataset_builder

    place = given.hakari / "scripts" / "build_reranking_hybrid_nano_dataset.py"
    spec = importlib.util.spec_from_file_location("hybrid", place)
    hybrid = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hybrid)
    for folder in given.folders:
        source = read_source(folder)
        ours = sample(source, "s").data
        queries, corpus, qrels = drawn_by_theirs(nano_dataset_builder, source, 10_000)
        assert list(ours.queries.items()) == list(queries.items())
        assert list(ours.corpus.items()) == list(corpus.items())
        assert ours.qrels == qrels
        config = bm25.BM25Config(tokenizer="wordseg", tokenizer_name="zh", top_k=500)
        theirs = bm25.rank_bm25_candidates(corpus=corpus, queries=queries, config=config)
        lists = bm25_lists(ours.corpus, ours.queries, "jieba", 500)
        positives = {query: set(documents) for query, documents in qrels.items()}

        def scored(rankings, positives=positives):
            scores = metrics.compute_ir_metrics(
                rankings=rankings,
                qrels=positives,
                evaluator_name="",
                score_name="",
                metric_names=list(NAMES.values()),
            )
            return {key.lstrip("_"): value for key, value in scores.items()}

        own = score_rankings(lists, qrels)
        for name, key in NAMES.items():
            assert abs(getattr(own, name) - scored(lists)[key]) < 1e-12, name
        draw = random.Random(5)
        dense = {query: draw.sample(list(corpus), 500) for query in queries}
        fused, _ = hybrid.rrf_hybrid_rankings(
            query_ids=list(queries),
            corpus_ids=list(corpus),
            qrels=positives,
            bm25_rankings=lists,
            dense_rankings=dense,
            top_k=100,
            rrf_k=100,
            seed=20260524,
            split="s",
        )
        assert hybrid_lists([lists, dense], ours.qrels, "s") == fused
        same = sum(theirs[query][:10] == lists[query][:10] for query in queries)
        print(
            f"{folder.name}: {len(queries)} queries, {len(corpus):,} documents, qrels, fused lists, "
            f"safeguards ({sum(len(row) > 100 for row in fused.values())}) and scores are equal; "
            f"BM25 nDCG@10 {own.ndcg_at_10:.4f} here, {scored(theirs)['ndcg@10']:.4f} there, "
            f"{same} of {len(queries)} first tens are equal"
        )


if __name__ == "__main__":
    main()
