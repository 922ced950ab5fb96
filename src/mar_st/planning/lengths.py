"""Amount of a stage's data and lengths of its texts, from a sample, for planning.

If the data of a recipe are available, rows are counted and token lengths are taken from sampled rows; if
they are not, rows come from the recipe's `expected_rows` and every text counts as `max_length` tokens.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoTokenizer

from mar_st.data import Texts, Triples, distinct, distinct_texts, locate, read_source
from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mar_st.recipes.schema import Backbone, Data, Recipe

#: Texts of each kind whose lengths are taken.
SAMPLE_TEXTS = 2000

#: A JSONL file above this size (bytes) is sampled, not read.
MAX_READ_BYTES = 64 * 2**20

#: Characters per token if no tokenizer is available: wide (Chinese) ones, others. A rule of thumb.
CHARACTERS_PER_TOKEN = {"cjk": 1.5, "other": 4.0}


@dataclass(frozen=True)
class EntryStats:
    """Rows and sampled texts of a data entry.

    Attributes:
        triples: Queries with positives and negatives; `None` if neither data nor recipe give their number.
        pairs: (query, positive) pairs.
        queries: Distinct queries, or texts of the role `query`.
        documents: Distinct documents, or texts of the role `document`.
        sampled: Whether the texts below were read; otherwise lengths are not known.
        query_texts: Sampled queries.
        document_texts: Sampled documents.
    """

    triples: float | None
    pairs: float | None
    queries: float | None
    documents: float | None
    sampled: bool = False
    query_texts: list[str] = field(default_factory=list)
    document_texts: list[str] = field(default_factory=list)


def entry_stats(entry: Data) -> EntryStats:
    """Return rows and a sample of a data entry, from the data or from what the recipe expects.

    Raises:
        MarError: The data exist but cannot be read.
    """
    try:
        path = None if entry.path.startswith("hub:") else locate(entry.path)
    except MarError:
        path = None
    if path is None:
        return _expected(entry)
    if path.is_file() and path.suffix in (".jsonl", ".json") and path.stat().st_size > MAX_READ_BYTES:
        return _sampled(entry, path)
    return _stats(entry, 1.0)


def _expected(entry: Data) -> EntryStats:
    rows = entry.expected_rows
    if rows is None:
        return EntryStats(None, None, None, None)
    if entry.limit is not None:
        rows = min(rows, entry.limit)
    if entry.form == "texts":
        sides = {"query": 0.0, "document": 0.0, entry.role: float(rows)}
        return EntryStats(None, None, sides["query"], sides["document"])
    return EntryStats(rows, rows, rows, rows * (1 + entry.negatives))


def _sampled(entry: Data, path: Path) -> EntryStats:
    """Read evenly spaced lines of a large file as if they were the file."""
    with path.open("rb") as stream:
        # A file without line breaks, such as an array of JSON, is one line.
        breaks = sum(block.count(b"\n") for block in iter(lambda: stream.read(2**24), b""))
        lines = max(1, breaks)
    step = max(1, lines // SAMPLE_TEXTS)
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as stream:
        part = Path(folder) / path.name
        with part.open("wb") as out:
            out.writelines(itertools.islice(stream, 0, step * SAMPLE_TEXTS, step))
        sample = entry.model_copy(update={"path": str(part), "limit": None})
        sampled_lines = min(SAMPLE_TEXTS, -(-lines // step))
        scale = lines / sampled_lines
        stats = _stats(sample, scale)
    rows = (stats.queries or 0) + (stats.documents or 0) if stats.triples is None else stats.triples
    if entry.limit is None or rows <= entry.limit:
        return stats
    counts = {key: getattr(stats, key) for key in ("triples", "pairs", "queries", "documents")}
    limited = {key: count * entry.limit / rows for key, count in counts.items() if count is not None}
    return replace(stats, **limited)


def _stats(entry: Data, scale: float) -> EntryStats:
    source = read_source(entry, 0)
    rng = random.Random(0)

    def sampled(texts: Sequence[str]) -> list[str]:
        return rng.sample(texts, SAMPLE_TEXTS) if len(texts) > SAMPLE_TEXTS else list(texts)

    if entry.form == "texts":
        texts = sampled(source.texts)
        count, query = len(source.texts) * scale, entry.role == "query"
        return EntryStats(
            None,
            None,
            count * query,
            count * (not query),
            True,
            texts if query else [],
            [] if query else texts,
        )
    queries, documents = distinct_texts(source.triples)
    if entry.symmetric:
        queries, documents = distinct(queries, documents), Texts([])
    return EntryStats(
        triples=len(source.triples) * scale,
        pairs=int(Triples.of(source.triples).positives.sum()) * scale,
        queries=len(queries) * scale,
        documents=len(documents) * scale,
        sampled=True,
        query_texts=sampled(queries),
        document_texts=sampled(documents) or sampled(queries),
    )


def tokens_of(backbone: Backbone, recipe: Recipe, texts: Sequence[str]) -> tuple[Callable[[str], int], str]:
    """Return a function that counts a text's tokens on one side, and a note on how it counts.

    The tokenizer of a random backbone is trained on the sampled texts, that of a `source` is read from its
    folder or the local cache of the Hub; else characters are counted, see `CHARACTERS_PER_TOKEN`.
    """
    side = "query" if backbone is recipe.query else "document"
    tokenizer: Any = None
    if backbone.tokenizer is not None and texts:
        from mar_st.model.tokenizers import train_tokenizer  # lazy: tokenizers

        tokenizer = train_tokenizer(texts, side, **backbone.tokenizer.model_dump())  # type: ignore[arg-type]
        how = "tokenizer trained on sampled texts"
    elif backbone.source is not None:
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                backbone.source, revision=backbone.revision, local_files_only=True
            )
            how = "its tokenizer"
        except (OSError, ValueError):
            pass
    if tokenizer is None:
        return lambda text: min(_by_characters(text), backbone.max_length), "estimated from characters"

    def length(text: str) -> int:
        return min(len(tokenizer(text, verbose=False)["input_ids"]), backbone.max_length)

    return length, how


def _by_characters(text: str) -> int:
    wide = sum("\u2e80" <= character <= "\uffef" for character in text)
    return round(wide / CHARACTERS_PER_TOKEN["cjk"] + (len(text) - wide) / CHARACTERS_PER_TOKEN["other"]) + 2


def padded_length(lengths: Sequence[int], batch: int, groups: int = 0) -> float:
    """Return the mean length that a batch is padded to: the longest of `batch` texts drawn from a sample.

    Args:
        lengths: Tokens of the sampled texts.
        batch: Texts of a column that are padded together.
        groups: Batches sorted by length together (`length_groups`), which reduces the result to the mean.
    """
    rng = random.Random(0)
    together = min(batch * max(groups, 1), 50 * len(lengths))
    totals = []
    for _ in range(30):
        drawn = sorted(rng.choices(lengths, k=together))
        ends = drawn[batch - 1 :: batch] or drawn[-1:]
        totals.append(sum(ends) / len(ends))
    return sum(totals) / len(totals)
