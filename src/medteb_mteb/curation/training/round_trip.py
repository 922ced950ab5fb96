"""Round-trip consistency: a query is kept if a retriever finds the document that it was written for.

Source: BMRetriever (arXiv 2404.18443, section on synthetic data): a synthetic query stays only if its passage
is among the three best of E5-base over the set's own corpus; its hard negative is a random one of the best
100, positives excluded.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from medteb_mteb.curation.files.folder import alone, claim, lineage, read_json, write_json
from medteb_mteb.curation.files.read import MANIFEST, STEP_FILE, read_texts, source_digest
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training.leaks import HeldOut
from medteb_mteb.curation.training.rows import TEST_QUERY
from medteb_mteb.curation.training.shards import Shards
from medteb_mteb.curation.training.sources import Record, read_records, records_digest
from medteb_mteb.editions import sha256_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from mar_st.mining import Retriever, Rules
    from mar_st.mining.mine import Miner
    from mar_st.mining.rules import MinedQuery

__all__ = ["BEYOND_DEPTH", "NOT_FOUND", "RoundTrip", "RoundTripReport", "round_trip"]

SCHEMA_VERSION = 1
#: Rows that are searched for between two writes.
ROWS_PER_SHARD = 512
OUTPUT_NAMES = ("triples", "pairs", "dropped")
#: Why a pair is dropped: its document has a rank, or is beyond the depth of the search.
BEYOND_DEPTH, NOT_FOUND = "beyond-depth", "not-found"
#: Ranks up to which pairs are counted in the manifest.
RANK_CUTOFFS = (1, 3, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class RoundTrip:
    """Settings of the round trip.

    Attributes:
        depth: Maximum rank of the document of a kept pair.
        negatives: Number of hard negatives added to each row, drawn from the documents that the retriever
            ranks up to `top`, without the query's positives and documents nearly equal to one.
        top: Depth of the search, for negatives and for the reported ranks.
        seed: Seed of the draw; a query's draw depends only on it and on the query's text.
    """

    depth: int = 3
    negatives: int = 0
    top: int = 100
    seed: int = 42

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= self.top or not 0 <= self.negatives <= self.top:
            raise BuildError(
                f"depth must be between 1 and top, and negatives between 0 and top; got depth {self.depth}, "
                f"negatives {self.negatives}, top {self.top}."
            )

    def rules(self) -> Rules:
        """Return the equivalent rules of `mar mine`."""
        from mar_st.mining import Rules  # lazy: torch

        return Rules(
            num_negatives=self.negatives, top=self.top, fill=False, consistent=self.depth, seed=self.seed
        )


@dataclass(frozen=True)
class RoundTripReport:
    """Report of a round trip.

    Attributes:
        folder: Folder of the output.
        read: Number of pairs: a row with two positives is two.
        kept: Number of pairs that were kept.
        dropped: Number of dropped pairs by reason.
        ranks: Number of pairs whose document is found up to a rank, by rank.
        rows: Numbers of rows read, rows kept, documents of the corpus, negatives, and rows without negatives.
    """

    folder: Path
    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready content."""
        return {**self.__dict__, "folder": str(self.folder)}


def round_trip(
    pairs: str | Path,
    out: str | Path,
    retriever: Retriever,
    how: RoundTrip | None = None,
    *,
    documents: str | Path | None = None,
    held_out: HeldOut | None = None,
    shard: int = ROWS_PER_SHARD,
    show_progress: bool = True,
) -> RoundTripReport:
    """Keep the pairs whose document a retriever finds for their query.

    `OUT/triples.jsonl` holds rows with negatives and `OUT/pairs.jsonl` rows without, each with the `ranks` of
    its positives; `OUT/dropped.jsonl` holds dropped pairs with the reason and the rank (`null`: not found).
    Ranks count from 1 over the documents except other positives of the query and the query itself.
    A run that is killed at any moment and started again writes the same bytes.

    Args:
        pairs: Pairs or triples in any form that `mar train` reads; further columns of JSON rows are kept.
        out: Folder to write.
        retriever: The retriever, see `medteb_mteb.curation.pooling.pool.open_retriever`.
        how: Settings.
        documents: Corpus, see `read_texts`; default the documents of the pairs. Their positives
            are always added.
        held_out: Queries that models will be tested on; pairs of near-duplicates of them are dropped.
        shard: Number of rows searched between two writes.
        show_progress: Show a progress bar.

    Raises:
        BuildError: The folder belongs to something else, is in use or cannot be written.
        DataError: Pairs are unusable; file and line are named.
        FolderError: Documents are unusable.
        MarError: A model does not exist.
    """
    from mar_st.mining.mine import Miner  # lazy: torch

    how, folder, tests = how or RoundTrip(), Path(out), held_out or HeldOut()
    records = read_records(pairs)
    corpus = None if documents is None else [text.full for text in read_texts(documents)]
    identity = _identity(records, documents, retriever, how, tests, shard)
    with alone(folder):
        claim(folder, json.loads(json.dumps(identity)))
        shards = Shards(folder, OUTPUT_NAMES)
        if (folder / MANIFEST).is_file():
            shards.forget()
            return _report(folder, read_json(folder / MANIFEST))
        miner = Miner([retriever], [record.triple for record in records], corpus, rules=how.rules())
        leaks = {records[row].triple.query for row in tests.leaks([one.triple.query for one in records])}
        _work(_Filter(miner, retriever, how.rules(), leaks), records, shards, shard, show_progress)
        counts = shards.counts()
        content = {
            **identity,
            "read": counts["pairs read"],
            "kept": counts["pairs kept"],
            "dropped": {
                reason: counts[reason] for reason in (TEST_QUERY, BEYOND_DEPTH, NOT_FOUND) if counts[reason]
            },
            "ranks": {str(k): counts[f"rank {k}"] for k in RANK_CUTOFFS if k <= how.top},
            "rows": {
                "read": len(records),
                "kept": counts["rows kept"],
                "documents": len(miner.corpus),
                "negatives": counts["negatives"],
                "without a negative": counts["rows without a negative"],
            },
            "before": {
                "pairs": _origin(Path(pairs)),
                "documents": [] if documents is None else lineage(documents),
            },
            "files": shards.join(),
        }
        write_json(folder / MANIFEST, content)
        shards.forget()
    return _report(folder, content)


def _identity(
    records: Sequence[Record],
    documents: str | Path | None,
    retriever: Retriever,
    how: RoundTrip,
    tests: HeldOut,
    shard: int,
) -> dict[str, Any]:
    """Return the settings and digests that the output depends on; they identify the folder."""
    return {
        "schema_version": SCHEMA_VERSION,
        "step": "round-trip",
        "settings": {**how.__dict__, "retriever": retriever.identity()},
        "input": {
            "pairs": records_digest(records),
            "documents": None if documents is None else source_digest(documents),
        },
        "shard": shard,
        **({"against": tests.digest()} if tests.texts else {}),
    }


def _work(decide: _Filter, records: Sequence[Record], shards: Shards, size: int, show_progress: bool) -> None:
    with tqdm(total=len(records), desc="round-trip", unit="rows", disable=not show_progress) as bar:
        for number, start in enumerate(range(0, len(records), size)):
            batch = records[start : start + size]
            if shards.finished(number) is None:
                shards.write(number, *decide(batch))
            bar.update(len(batch))


class _Filter:
    """Searches for the queries of some rows and decides about each row.

    Args:
        miner: Miner with numbered queries and documents, and all positives of each query.
        retriever: The retriever.
        rules: Rules for the choice of negatives.
        leaks: Near-duplicates of queries of a test.
    """

    def __init__(self, miner: Miner, retriever: Retriever, rules: Rules, leaks: Container[str] = ()) -> None:
        from mar_st.mining.rules import Picker  # lazy: torch

        self.leaks = leaks
        self.miner, self.retriever, self.rules = miner, retriever, rules
        self.rows = {question.text: row for row, question in enumerate(miner.questions)}
        self.places = {text: place for place, text in enumerate(miner.corpus)}
        self.picker = Picker(rules, miner.corpus)
        self._prepared = False

    def __call__(self, records: Sequence[Record]) -> tuple[dict[str, list[dict[str, Any]]], Counter[str]]:
        """Return the rows by name of the file, and counts."""
        if not self._prepared:
            queries = [question.text for question in self.miner.questions]
            self.retriever.prepare(queries, self.miner.corpus)
            self._prepared = True
        rows = [self.rows[record.triple.query] for record in records]
        questions = [self.miner.questions[row] for row in rows]
        # Known positives and the query itself take no ranks, so look that much further.
        k = self.rules.top + max(len(question.known) for question in questions) + 1
        retrieved = self.retriever.search(rows, k, [np.empty(0, dtype=np.int64) for _ in rows])
        files: dict[str, list[dict[str, Any]]] = {name: [] for name in OUTPUT_NAMES}
        counts: Counter[str] = Counter()
        for record, question, places in zip(records, questions, retrieved.documents, strict=True):
            self._decide(record, question, places[places >= 0].tolist(), files, counts)
        return files, counts

    def _decide(
        self,
        record: Record,
        question: MinedQuery,
        ranked: list[int],
        files: Mapping[str, list[dict[str, Any]]],
        counts: Counter[str],
    ) -> None:
        depth = self.rules.consistent or 0
        kept: dict[str, int] = {}
        if record.triple.query in self.leaks:
            for text in record.triple.positives:
                counts.update(("pairs read", TEST_QUERY))
                row = {"query": record.triple.query, "positive": text, **record.more}
                files["dropped"].append({**row, "reason": TEST_QUERY, "rank": None})
            return
        for text in record.triple.positives:
            rank = question.rank_of(self.places[text], ranked)
            if rank is not None and rank > self.rules.top:
                rank = None  # the lists of a shard are of one length, which depends on the other rows
            counts["pairs read"] += 1
            counts.update(f"rank {k}" for k in RANK_CUTOFFS if rank is not None and rank <= k)
            if rank is not None and rank <= depth:
                kept[text] = rank
                counts["pairs kept"] += 1
                continue
            reason = NOT_FOUND if rank is None else BEYOND_DEPTH
            counts[reason] += 1
            row = {"query": record.triple.query, "positive": text, **record.more}
            files["dropped"].append({**row, "reason": reason, "rank": rank})
        if not kept:
            return
        negatives = self._negatives(record, question, ranked)
        counts["rows kept"] += 1
        counts["negatives"] += len(negatives)
        if self.rules.num_negatives and not negatives:
            counts["rows without a negative"] += 1
        files["triples" if negatives else "pairs"].append(
            record.row(tuple(kept), negatives) | {"ranks": list(kept.values())}
        )

    def _negatives(self, record: Record, question: MinedQuery, ranked: list[int]) -> tuple[str, ...]:
        """Return the negatives of the row, then the mined ones."""
        known = {self.miner.corpus[place] for place in question.known}
        labelled = [text for text in record.triple.negatives if text not in known]
        if not self.rules.num_negatives:
            return tuple(labelled)
        picked = self.picker.pick(question, [ranked], {}, Counter())
        return tuple(dict.fromkeys([*labelled, *(self.miner.corpus[place] for place in picked.mined)]))


def _origin(pairs: Path) -> dict[str, Any] | None:
    """Return the step that wrote the pairs: its name, its settings, the digest of its manifest."""
    folder = pairs if pairs.is_dir() else pairs.parent
    if not (folder / STEP_FILE).is_file() or not (folder / MANIFEST).is_file():
        return None
    step = read_json(folder / STEP_FILE)
    return {
        "step": step.get("step"),
        "settings": step.get("settings"),
        "manifest": sha256_of(folder / MANIFEST),
    }


def _report(folder: Path, content: Mapping[str, Any]) -> RoundTripReport:
    return RoundTripReport(folder, *(content[name] for name in ("read", "kept", "dropped", "ranks", "rows")))
