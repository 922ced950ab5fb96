"""Near-duplicates among raw texts: MinHash finds candidates, the true Jaccard similarity decides.

Texts are compared by the sets of their character n-grams after NFKC, in lower case, letters and digits only.
MinHash with locality-sensitive hashing (the library `rensa`) only selects the earlier texts to compare with.
A near-duplicate that it overlooks is kept; a text below the threshold is never dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from mar_st.files import load_package
from mar_st.text.texts import normalise
from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.files.step import TextsSettings, run_step
from medteb_mteb.curation.step import Counts, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

REASON = "near-duplicate"
DOCUMENT_SIMILARITY = 0.8
#: Characters of an n-gram. A Chinese character carries about as much as half a word; with n-grams of 3, a
#: change of one character in a sentence of 20 leaves a similarity of .71, with 5 of .52.
NGRAM_LENGTH = 3
#: Hash values of a sketch.
PERMUTATIONS = 256
#: Minimum probability that two texts with the threshold's similarity are compared; it grows with similarity.
MIN_RECALL = 0.995
SEED = 42
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
