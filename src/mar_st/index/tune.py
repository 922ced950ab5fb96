"""Recall against exact search, the cheapest search settings that reach a target, and the weight of BM25.

The vectors of a weak query encoder lie further from the documents than those of a strong one, so a graph or
cells find fewer of their true neighbours with the same settings; and BM25 helps a weak encoder and harms a
strong one. `tune` measures with the queries of one encoder. What it finds is kept in the manifest under the
digest of the encoder's modules, so that every form of the encoder (saved, exported) is recognised.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.files import locked
from mar_st.index.base import Index
from mar_st.index.folder import FolderIndex, publish, read_manifest
from mar_st.index.vectors import LADDERS
from mar_st.online.protocol import QueryEncoder, encoder_name, encoder_origin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st.data.trec import Qrels, Run
    from mar_st.encode.vectors import Vectors

#: Recall@10 relative to exact search that search settings should reach.
RECALL = 0.95

#: Weights of BM25 to choose from; the weight of the vectors is 1.
WORDS_WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)

#: Number of results at which recall is measured.
RECALL_DEPTH = 10

#: Maximum number of queries to measure with when an index is built, and when an encoder is tuned.
MAX_RECALL_QUERIES, MAX_EFFORT_QUERIES = 200, 1000

#: Distance of a generated query from a corpus vector, relative to the spread of the corpus.
SHIFT = 0.5


def made_queries(source: Vectors) -> np.ndarray:
    """Generate query vectors from the vectors of a corpus, `(n, dim)` float32.

    A query is not a document: a graph has links from the corpus vectors themselves, so recall measured with
    them is too high. Here each is moved by `SHIFT` times the difference of two others divided by the square
    root of 2 (which has the spread of the corpus), and scaled back to its length.
    """
    rng = np.random.default_rng(1)
    count = min(MAX_RECALL_QUERIES, len(source))
    rows = [np.sort(rng.choice(len(source), count, replace=False)) for _ in range(3)]
    start, first, second = (source[drawn] for drawn in rows)
    moved = start + SHIFT * (rng.permutation(first) - rng.permutation(second)) / np.float32(2**0.5)
    length, wanted = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (moved, start))
    return np.asarray(moved * (wanted / np.maximum(length, np.finfo(np.float32).tiny)), dtype=np.float32)


def calibrated(index: FolderIndex, queries: np.ndarray, target: float = RECALL) -> dict[str, Any]:
    """Return the cheapest search settings that reach a recall, otherwise the most thorough.

    Args:
        index: The index.
        queries: Vectors, `(n, dim)` float32.
        target: Recall@10 relative to exact search.

    Returns:
        `search` (the settings), and `recall@10` (measured).
    """
    expected = index.exact(queries, RECALL_DEPTH).keys
    measured = 0.0
    settings: Mapping[str, int] = {}
    for settings in LADDERS[index.kind]:
        found = index.find(queries, RECALL_DEPTH, None, settings).keys
        shares = [len({*a} & {*b}) / len(b) for a, b in zip(found, expected, strict=True)]
        measured = float(np.mean(shares))
        if measured >= target:
            break
    return {"search": dict(settings), f"recall@{RECALL_DEPTH}": round(measured, 4)}


def tune(
    index: str | Path,
    queries: Mapping[str, str],
    *,
    qrels: Qrels | None = None,
    encoder: QueryEncoder | str | Path | None = None,
    query: str | None = None,
    target: float = RECALL,
) -> dict[str, Any]:
    """Measure what a query encoder needs on an index, and store it in the index.

    Measured are the search settings that reach a recall, and with qrels the weight of BM25 in hybrid search.
    `mar search`, `mar serve` and `Searcher` then use both whenever they search with this encoder. Other
    encoders keep the settings that the index was built with, and a weight of 1.

    Args:
        index: Folder of the index.
        queries: Queries by id, as users ask them; at most 1,000 of them are used.
        qrels: Grades by query and document.
        encoder: See `Searcher.open`; default the model that encoded the documents.
        query: See `Searcher.open`.
        target: Recall@10 against exact search with the same vectors.

    Returns:
        `query` (name of the encoder), `queries` (how many), `search` (the settings), `recall@10`; with qrels
        `words` (the weight) and `fusion`, see `tune_fusion`.

    Raises:
        MarError: The index is not a folder, or there is nothing to tune: it is exact, and there are no qrels
            or no BM25; there are no queries, or the encoder does not belong to the index.
    """
    from mar_st.index.searcher import Searcher  # lazy: mar_st.online

    opened = Index.open(index)
    fusion = qrels is not None and opened.has_words
    if not isinstance(opened, FolderIndex) or (opened.kind == "exact" and not fusion):
        raise MarError(
            f"{index} is of kind {opened.kind} and has nothing to tune. A folder of another kind has; so has "
            "one with BM25, if you give --qrels."
        )
    if not queries:
        raise MarError("There are no queries to measure with.")
    searcher = Searcher.open(opened, opened.model_source() if encoder is None else encoder, query=query)
    origin = encoder_origin(searcher.encoder)
    if origin is None:
        raise MarError("The encoder has no digest, so tuned settings cannot be stored for it.")
    names = list(queries)
    chosen = np.linspace(0, len(names) - 1, min(MAX_EFFORT_QUERIES, len(names))).round().astype(int)
    texts = {names[place]: queries[names[place]] for place in chosen}
    vectors = searcher.vectors(list(texts.values()))
    entry: dict[str, Any] = {"query": encoder_name(searcher.encoder), "queries": len(texts), "search": {}}
    if opened.kind != "exact":
        entry |= calibrated(opened, vectors, target)
    if qrels is not None and fusion:
        entry |= tune_fusion(opened, texts, vectors, qrels, entry["search"])
    with locked(opened.folder):
        manifest = read_manifest(opened.folder)
        publish(opened.folder, manifest, {**manifest, "efforts": {**manifest["efforts"], origin: entry}})
    return entry


def evaluate(run: Run, qrels: Qrels, k: int) -> dict[str, float]:
    """Return mean nDCG@10, recall and reciprocal rank over the queries that have relevant documents.

    Args:
        run: Scores by query and document.
        qrels: Grades by query and document.
        k: Depth of the run.

    Raises:
        MarError: No query of the run is in the qrels.
    """
    import pytrec_eval  # lazy: pytrec_eval

    judged = {query: grades for query, grades in qrels.items() if any(grade > 0 for grade in grades.values())}
    if not judged.keys() & run.keys():
        raise MarError("No query of the run is in the qrels. Check that both belong to the same data.")
    names = {
        "ndcg@10": "ndcg_cut_10",
        "recall@10": "recall_10",
        f"recall@{k}": f"recall_{k}",
        "mrr": "recip_rank",
    }
    measured = pytrec_eval.RelevanceEvaluator(
        judged, {"ndcg_cut.10", f"recall.10,{k}", "recip_rank"}
    ).evaluate(run)
    means = {
        shown: math.fsum(scores[name] for scores in measured.values()) / len(judged)
        for shown, name in names.items()
    }
    return {**means, "queries": len(judged)}


def tune_fusion(
    index: FolderIndex,
    queries: Mapping[str, str],
    vectors: np.ndarray,
    qrels: Qrels,
    settings: Mapping[str, int],
) -> dict[str, Any]:
    """Return the weight of BM25 in hybrid search with the highest nDCG@10.

    The weight is chosen with every second query and reported with the others; of equal scores, the lowest
    weight is taken. A weight of 0 says that BM25 does not help.

    Args:
        index: The index.
        queries: Texts by id.
        vectors: Their vectors.
        qrels: Grades by query and document.
        settings: Search settings.

    Returns:
        `words` (the weight) and `fusion`: the number of `queries` of the report, and the nDCG@10 of `dense`,
        `equal` weights, and the `tuned` one.

    Raises:
        MarError: There are fewer than two queries with relevant documents.
    """
    from mar_st.index.searcher import MIN_FUSION_DEPTH, fuse  # lazy: mar_st.online

    places = [place for place, name in enumerate(queries) if any(g > 0 for g in qrels.get(name, {}).values())]
    if len(places) < 2:
        raise MarError("Two queries or more need a relevant document in the qrels.")
    names = [list(queries)[place] for place in places]
    dense = index.find(vectors[places], MIN_FUSION_DEPTH, None, settings)
    words = index.find_words([queries[name] for name in names], MIN_FUSION_DEPTH, None)

    def score(weight: float, part: slice) -> float:
        run = {}
        for name, *legs in list(zip(names, dense.keys, dense.scores, words.keys, words.scores, strict=True))[
            part
        ]:
            fused = fuse({"dense": (legs[0], legs[1]), "bm25": (legs[2], legs[3])}, weight)[:RECALL_DEPTH]
            ids = index.ids([document.key for document in fused])
            run[name] = {one: float(-rank) for rank, one in enumerate(ids)}
        return evaluate(run, {name: qrels[name] for name in run}, RECALL_DEPTH)["ndcg@10"]

    choice, report = slice(0, None, 2), slice(1, None, 2)
    weight = max(WORDS_WEIGHTS, key=lambda one: (round(score(one, choice), 6), -one))
    measured = {"dense": 0.0, "equal": 1.0, "tuned": weight}
    return {
        "words": weight,
        "fusion": {
            "queries": len(names[report]),
            **{name: round(score(one, report), 4) for name, one in measured.items()},
        },
    }
