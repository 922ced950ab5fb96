"""Near-duplicates: the step `dedup` for raw texts, clusters of queries, and a split that shares none.

For `dedup`, MinHash finds candidates, and the true Jaccard similarity decides. Texts are compared by the sets
of their character n-grams after NFKC, in lower case, letters and digits only. MinHash with locality-sensitive
hashing (the library `rensa`) only selects the earlier texts to compare with. A near-duplicate that it
overlooks is kept; a text below the threshold is never dropped.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from mar_st.files import load_package
from mar_st.text.texts import normalise
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.files.step import TextsSettings, run_step
from medteb_mteb.curation.step import SEED, Counts, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

REASON = "near-duplicate"
DOCUMENT_SIMILARITY = 0.8
#: Characters of an n-gram. A Chinese character carries about as much as half a word; with n-grams of 3, a
#: change of one character in a sentence of 20 leaves a similarity of .71, with 5 of .52.
NGRAM_LENGTH = 3
#: Hash values of a sketch.
PERMUTATIONS = 256
#: Minimum probability that two texts with the threshold's similarity are compared; it grows with similarity.
MIN_RECALL = 0.995
#: Texts that are sketched at once.
BATCH_SIZE = 1000


def shingles(text: str, width: int = NGRAM_LENGTH) -> frozenset[str]:
    """Return the character n-grams of the normalised text; a shorter text is its only n-gram.

    A text without letters and digits is compared unchanged.
    """
    plain = normalise(text) or text
    return frozenset(plain[i : i + width] for i in range(max(1, len(plain) - width + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the size of the intersection of two sets over that of their union."""
    common = len(one & other)
    return common / (len(one) + len(other) - common) if common else 0.0


def bands(threshold: float, permutations: int = PERMUTATIONS) -> int:
    """Return the fewest bands of equal size with which `MIN_RECALL` is reached at the threshold.

    Two texts of Jaccard similarity s share a band of r values with chance s^r, so are compared with chance
    1 - (1 - s^r)^bands (Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, 3.4). Few bands of many
    values leave the fewest candidates.
    """
    for number in range(1, permutations):
        rows, remainder = divmod(permutations, number)
        if not remainder and 1 - (1 - threshold**rows) ** number >= MIN_RECALL:
            return number
    return permutations


class NearDuplicates:
    """Drops a text that is nearly the same as one kept before it.

    A dropped text's detail is the id of the most similar kept text (of equal ones the first) and the
    similarity.

    Args:
        threshold: Minimum Jaccard similarity at which a text is dropped.

    Raises:
        MarError: rensa is not installed.
    """

    name = "dedup"

    def __init__(self, threshold: float = DOCUMENT_SIMILARITY) -> None:
        rensa = load_package("rensa", extra="build")
        self.threshold = threshold
        self._sketch = rensa.RMinHash.from_token_sets
        self._index: Any = rensa.RMinHashLSH(
            threshold=threshold, num_perm=PERMUTATIONS, num_bands=bands(threshold)
        )
        self._kept: list[tuple[str, str]] = []

    def restore(self, kept: Sequence[Text]) -> None:
        """Put texts back into the index that an earlier run has kept."""
        for text, _, sketch in self._sketches(kept):
            self._keep(text, sketch)

    def __call__(self, texts: Sequence[Text]) -> Iterable[Text | Dropped]:
        """Decide about the texts of the next shard."""
        for text, grams, sketch in self._sketches(texts):
            similarity, number = self._nearest(grams, sketch)
            if similarity >= self.threshold:
                yield Dropped(text, REASON, f"{self._kept[number][0]} {similarity:.4f}")
            else:
                self._keep(text, sketch)
                yield text

    def _sketches(self, texts: Sequence[Text]) -> Iterator[tuple[Text, frozenset[str], Any]]:
        for start in range(0, len(texts), BATCH_SIZE):
            batch = texts[start : start + BATCH_SIZE]
            grams = [shingles(text.full) for text in batch]
            sketches = self._sketch(list(map(list, grams)), num_perm=PERMUTATIONS, seed=SEED)
            yield from zip(batch, grams, sketches, strict=True)

    def _nearest(self, grams: frozenset[str], sketch: Any) -> tuple[float, int]:
        """Return similarity and number of the most similar candidate; 0 and -1 if there is none."""
        best, nearest = 0.0, -1
        for number in sorted(self._index.query(sketch)):
            similarity = jaccard(grams, shingles(self._kept[number][1]))
            if similarity > best:
                best, nearest = similarity, number
        return best, nearest

    def _keep(self, text: Text, sketch: Any) -> None:
        self._index.insert(len(self._kept), sketch)
        self._kept.append((text.id, text.full))


class DedupSettings(TextsSettings):
    """Options of the step `dedup`."""

    threshold: float = Field(
        DOCUMENT_SIMILARITY, gt=0, le=1, description="Jaccard similarity from which a text is dropped."
    )


def _run(settings: DedupSettings) -> Counts:
    """Drop texts that nearly repeat an earlier one, by their characters."""
    work = NearDuplicates(settings.threshold)
    return run_step(work, settings)


DEDUP = Step("dedup", DedupSettings, _run, "texts")


#: Jaccard similarity of character 1- and 2-grams from which two queries count as near-duplicates: queries
#: that differ by a particle do (.67), the same sentence with another disease does not (.38).
QUERY_SIMILARITY = 0.6

#: Rows of a block of the similarity matrix.
TEXTS_PER_BLOCK = 1000


def near_duplicates(
    left: Sequence[str], right: Sequence[str] | None = None, *, threshold: float = QUERY_SIMILARITY
) -> Iterator[tuple[int, int, float]]:
    """Return all pairs of texts whose character n-grams overlap; exact, not sampled.

    Args:
        left: Texts.
        right: Other texts; default `left`, each pair once.
        threshold: Jaccard similarity of the sets of 1- and 2-grams of the normalised texts.

    Yields:
        Row in `left`, row in `right`, similarity; in order of the rows.
    """
    other = left if right is None else right
    if not left or not other:
        return
    from sklearn.feature_extraction.text import CountVectorizer  # lazy: sklearn

    counter = CountVectorizer(analyzer=_grams, dtype=np.float32)
    others = counter.fit_transform(other)
    transposed, other_sizes = others.T.tocsr(), np.asarray(others.sum(axis=1)).ravel()
    for start in range(0, len(left), TEXTS_PER_BLOCK):
        part = left[start : start + TEXTS_PER_BLOCK]
        block = counter.transform(part)
        sizes = np.array([len(_grams(text)) for text in part], dtype=np.float32)
        shared = (block @ transposed).tocoo()
        rows, columns = shared.row + start, shared.col
        similarity = shared.data / (sizes[shared.row] + other_sizes[columns] - shared.data)
        kept = similarity >= threshold
        if right is None:
            kept &= rows < columns
        order = np.lexsort((columns[kept], rows[kept]))
        pairs = zip(rows[kept][order], columns[kept][order], similarity[kept][order], strict=True)
        yield from ((int(row), int(column), float(value)) for row, column, value in pairs)


def clusters(texts: Sequence[str], *, threshold: float = QUERY_SIMILARITY) -> list[list[int]]:
    """Return clusters of texts that are near-duplicates, directly or through others.

    Returns:
        Rows of each cluster, ascending; clusters are in the order of their first rows.
    """
    from scipy.sparse import coo_array  # lazy: scipy
    from scipy.sparse.csgraph import connected_components  # lazy: scipy

    if not texts:
        return []
    pairs = [(first, second) for first, second, _ in near_duplicates(texts, threshold=threshold)]
    rows, columns = np.array(pairs, dtype=int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(pairs)), (rows, columns)), (len(texts), len(texts)))
    _, labels = connected_components(graph, directed=False)
    groups: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        groups.setdefault(label, []).append(row)
    return list(groups.values())


def split_queries(
    queries: Mapping[str, str], test: float, *, threshold: float = QUERY_SIMILARITY
) -> tuple[list[str], list[str], list[int]]:
    """Put whole clusters of near-duplicate queries on one side.

    Clusters are drawn, always the same, and go to the test as long as they fit.

    Args:
        queries: Text by id.
        test: Maximum number of test queries, or their share if below 1; 1 or more of all there are takes all.
        threshold: See `near_duplicates`.

    Returns:
        Ids of the test and of training, in the given order, and the sizes of all clusters.
    """
    ids = list(queries)
    groups = clusters(list(queries.values()), threshold=threshold)
    wanted = round(test * len(ids)) if test < 1 else int(test)
    drawn = groups[:]
    random.Random(SEED).shuffle(drawn)
    chosen: set[int] = set()
    for group in drawn:
        if len(chosen) + len(group) <= wanted:
            chosen.update(group)
    tested = [name for row, name in enumerate(ids) if row in chosen]
    return tested, [name for row, name in enumerate(ids) if row not in chosen], list(map(len, groups))


def _grams(text: str) -> set[str]:
    """Return the 1- and 2-grams of a text; one of symbols only is compared unchanged."""
    plain = normalise(text) or text
    return {*plain, *(plain[i : i + 2] for i in range(len(plain) - 1))}
