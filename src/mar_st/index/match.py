"""Threshold on the score of the nearest document, below which a search has no good match.

A search by vectors returns the nearest documents however far away they are. For a query encoder,
`calibrate_match` measures how near the nearest document is to queries that have an answer, and stores a
threshold; a search whose nearest document scores less is `doubtful`. The threshold is that of split conformal
prediction (Lei et al., 2018, "Distribution-free predictive inference for regression", section 2.2, with the
score as measure of conformity): of queries like those it was chosen on, at most the given share is rejected.
"""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mar_st.index.base import Index
from mar_st.index.errors import IndexingError
from mar_st.index.searcher import Searcher
from mar_st.online.protocol import encoder_name, encoder_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mar_st.index.base import Key
    from mar_st.online import QueryEncoder

Share: TypeAlias = dict[str, Any]

#: Maximum number of queries; half of them choose the threshold and half measure it.
MAX_CALIBRATION_QUERIES = 2000

#: Maximum number of nonsense queries of each kind.
MAX_NONSENSE_QUERIES = 200

#: Share of queries with an answer that may be rejected.
FALSE_REJECT = 0.05

#: Number of documents whose beginnings serve as queries if none are given, and maximum length of a beginning.
SAMPLED_DOCUMENTS, BEGINNING_CHARACTERS = 1000, 60

#: Questions that an index of medical texts has no answer to, by language.
_EVERYDAY_FOLDER = Path(__file__).with_name("everyday")

_SENTENCE_END = re.compile(r"[。！？!?\n]|\.\s")

#: Quantiles of the scores that are stored for each set of queries.
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def calibrate_match(
    index: str | Path,
    queries: Sequence[str] | None = None,
    *,
    others: Sequence[str] | None = None,
    encoder: QueryEncoder | str | Path | None = None,
    query: str | None = None,
    false_reject: float = FALSE_REJECT,
    threads: int | None = None,
) -> dict[str, Any]:
    """Choose the threshold below which a search is doubtful, measure it, and store both in the index.

    Half of the queries choose the threshold. The other half, nonsense derived from it, and questions of
    another domain measure the threshold. No query is used for both.

    Args:
        index: Folder or address of the index.
        queries: Queries that the index can answer; default: the titles (or first sentences) of documents,
            each searched among the other documents.
        others: Queries of another domain; default everyday questions in Chinese and English.
        encoder: See `Searcher.open`; default the model that encoded the documents.
        query: See `Searcher.open`.
        false_reject: Share of queries with an answer that may be called doubtful.
        threads: Threads of the encoder.

    Returns:
        `query` (name of the encoder), `threshold`, `false_reject`, `source` (`queries` or `documents`),
        `chosen_on` (how many), `rejected` (of the held-out queries) and `detected` (by kind of query without
        an answer), each with `queries`, `share` and `interval` (95 %, Wilson), `scores` (quantiles by kind),
        and `documents` (size of the index).

    Raises:
        IndexingError: The index keeps no texts to use as queries, there are too few queries, the share is
            not between 0 and 1, or the encoder does not belong to the index.
    """
    opened = Index.open(index)
    if queries is None and not opened.has_texts:
        raise IndexingError(f"{index} keeps no texts that could serve as queries. Give --queries.")
    if not 0 < false_reject < 1:
        raise IndexingError(f"The share of false rejects must be between 0 and 1; got {false_reject}.")
    searcher = Searcher.open(
        opened, opened.model_source() if encoder is None else encoder, query=query, threads=threads
    )
    origin = encoder_origin(searcher.encoder)
    if origin is None:
        raise IndexingError("The encoder has no digest, so no threshold can be stored for it.")
    texts, scores = _answered(searcher, opened, queries)
    minimum = 2 * math.ceil(1 / false_reject - 1)
    if len(texts) < minimum:
        raise IndexingError(
            f"{len(texts)} different queries are too few to reject at most {false_reject:g} of those with an "
            f"answer: half choose the threshold, so give {minimum} or more."
        )
    half = len(texts) // 2
    threshold = choose_threshold(scores[:half], false_reject)
    held_out = scores[half:]
    unanswerable = {
        name: nearest(searcher, texts_of_kind)
        for name, texts_of_kind in _unanswerable(texts[half:], others).items()
        if texts_of_kind
    }
    entry = {
        "query": encoder_name(searcher.encoder),
        "threshold": threshold,
        "false_reject": false_reject,
        "source": "documents" if queries is None else "queries",
        "chosen_on": half,
        "rejected": share(held_out < threshold),
        "detected": {name: share(kind_scores < threshold) for name, kind_scores in unanswerable.items()},
        "scores": {
            name: _quantiles(kind_scores)
            for name, kind_scores in {"answered": held_out, **unanswerable}.items()
        },
        "documents": len(opened),
    }
    opened.keep("matches", origin, entry)
    return entry


def choose_threshold(scores: np.ndarray, false_reject: float) -> float:
    """Return the highest threshold that rejects at most a share of queries like those that were scored.

    Of `n` scores it is the one of rank `floor(false_reject * (n + 1))`: a further score that is exchangeable
    with them is lower with at most that probability.

    Args:
        scores: `(n,)` floats; `n` is at least `1 / false_reject - 1`.
        false_reject: The share.
    """
    rank = math.floor(false_reject * (len(scores) + 1) + 1e-9)
    return float(np.sort(scores)[rank - 1])


def nearest(searcher: Searcher, texts: Sequence[str]) -> np.ndarray:
    """Return the scores of the nearest document of each query, `(n,)` float32."""
    index = searcher.index
    return index.find(searcher.vectors(texts), 1, None, searcher.effort).scores[:, 0]


def share(flags: np.ndarray) -> Share:
    """Return a share of `(n,)` bools with its 95 % interval (Wilson)."""
    from scipy.stats import binomtest  # lazy: scipy

    interval = binomtest(int(flags.sum()), len(flags)).proportion_ci(method="wilson")
    return {
        "queries": len(flags),
        "share": round(float(flags.mean()), 4),
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
    }


def _answered(
    searcher: Searcher, index: Index, queries: Sequence[str] | None
) -> tuple[list[str], np.ndarray]:
    """Return the queries that have an answer, in random order, and the scores of their nearest documents."""
    if queries is not None:
        texts = [text for text in dict.fromkeys(queries) if text.strip()]
        random.Random(0).shuffle(texts)
        texts = texts[:MAX_CALIBRATION_QUERIES]
        return texts, nearest(searcher, texts) if texts else np.empty(0, np.float32)
    key_of: dict[str, Key] = {}
    for key, document in index.sample(SAMPLED_DOCUMENTS):
        beginning = document.title or _SENTENCE_END.split(document.text.strip(), 1)[0]
        text = beginning[:BEGINNING_CHARACTERS].strip()
        if text:
            key_of.setdefault(text, key)
    texts = list(key_of)
    random.Random(0).shuffle(texts)
    if not texts or len(index) < 2:
        return [], np.empty(0, np.float32)
    scored = index.find(searcher.vectors(texts), 2, None, searcher.effort)
    own_first = [keys[0] == key_of[text] for text, keys in zip(texts, scored.keys, strict=True)]
    return texts, np.where(own_first, scored.scores[:, 1], scored.scores[:, 0])


def _unanswerable(queries: Sequence[str], others: Sequence[str] | None) -> Mapping[str, list[str]]:
    """Return queries without an answer, by kind: nonsense of the same lengths, and another domain."""
    rng = random.Random(1)
    queries = queries[:MAX_NONSENSE_QUERIES]
    characters = "".join(queries)
    nonsense = {
        "shuffled": ["".join(rng.sample(text, len(text))) for text in queries],
        "drawn": ["".join(rng.choices(characters, k=len(text))) for text in queries],
        "characters": ["".join(chr(rng.randrange(0x4E00, 0x9FA6)) for _ in text) for text in queries],
        "letters": ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=len(text))) for text in queries],
    }
    if others is not None:
        return {**nonsense, "others": list(dict.fromkeys(others))}
    return {**nonsense, "everyday-zh": _everyday("zh"), "everyday-en": _everyday("en")}


def _everyday(language: str) -> list[str]:
    return (_EVERYDAY_FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines()


def _quantiles(scores: np.ndarray) -> dict[str, float]:
    values: Iterable[float] = np.quantile(scores.astype(np.float64), _QUANTILES)
    return {f"{100 * at:g}%": round(float(value), 4) for at, value in zip(_QUANTILES, values, strict=True)}
