"""Writes the mini edition: three task folders in the Hub layout with cards and manifests."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from medteb_mteb.editions import load_edition, write_manifest
from tools.mini.card import LICENCE, write_card
from tools.mini.cells import World, seeded
from tools.mini.knowledge import load_knowledge
from tools.mini.labels import RELEVANT_GRADES
from tools.mini.negatives import judged
from tools.mini.reranking import build_lists
from tools.mini.retrieval import CorpusIndex, build_test, positives
from tools.mini.sts import REWRITE_KINDS, build_sts
from tools.mini.train import build_train

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from medteb_mteb.editions import Edition
    from tools.mini.documents import Document
    from tools.mini.queries import Query
    from tools.mini.reranking import CandidateList
    from tools.mini.retrieval import TestSplit
    from tools.mini.sts import Pair
    from tools.mini.train import TrainSplit

NAME = "mini"
VERSION = "1.0.0"


@dataclass(frozen=True)
class MiniEdition:
    """All data of the three folders."""

    world: World
    test: TestSplit
    lists: dict[str, CandidateList]
    sts: tuple[list[Pair], list[Pair]]
    train: TrainSplit
    seed: int


def generate(seed: int = 42) -> MiniEdition:
    """Build the whole edition in memory; the same seed gives the same edition."""
    world = World(load_knowledge())
    test = build_test(world, seed)
    lists = build_lists(world, test.reranking, CorpusIndex(test.corpus), seed)
    queries = [*test.retrieval.values(), *test.reranking.values()]
    sts = build_sts(world, {query.text for query in queries}, seed)
    test_texts = {document.text for document in test.corpus.values()}
    test_texts |= {sentence for pair in sts[0] for sentence in (pair.sentence1, pair.sentence2)}
    return MiniEdition(world, test, lists, sts, build_train(world, queries, test_texts, seed), seed)


def build_mini(out: Path, seed: int = 42) -> list[Edition]:
    """Write the mini edition's three task folders below ``out``, replacing any that exist.

    Args:
        out: Parent folder of ``MedTEBRetrieval``, ``MedTEBReranking`` and ``MedTEBSTS``.
        seed: Seed of the edition; 42 gives the packaged edition.

    Returns:
        The editions, with the digests of their manifests.
    """
    edition = generate(seed)
    kb = load_knowledge()
    tables = (
        f"{len(kb.conditions)} conditions, {len(kb.drugs)} drugs, {len(kb.symptoms)} symptoms, "
        f"{len(kb.exams)} examinations, {len(kb.departments)} departments, {len(kb.groups)} patient groups"
    )
    writers = {
        "MedTEBRetrieval": _write_retrieval,
        "MedTEBReranking": _write_reranking,
        "MedTEBSTS": _write_sts,
    }
    editions = []
    for task, write in writers.items():
        part = out / f"{task}.part"
        if part.exists():
            shutil.rmtree(part)
        counts, statistics = write(part, edition)
        write_text(part / "README.md", write_card(task, counts, statistics, tables))
        write_manifest(
            part,
            task=task,
            name=NAME,
            version=VERSION,
            licence=LICENCE,
            counts=counts,
            seed=seed,
            synthetic=True,
        )
        final = out / task
        if final.exists():
            shutil.rmtree(final)
        part.rename(final)
        editions.append(load_edition(final))
    return editions


def write_edition(out: Path, seed: int = 42) -> list[Edition]:
    """Do the same as ``build_mini``."""
    return build_mini(out, seed)


Counts = dict[str, int]
Statistics = dict[str, object]


def _write_retrieval(folder: Path, edition: MiniEdition) -> tuple[Counts, Statistics]:
    test, train, world = edition.test, edition.train, edition.world
    index = CorpusIndex(test.corpus)
    letters = {
        query_id: judged(world, query.cell, index, seeded("judged", edition.seed, query_id))
        for query_id, query in test.retrieval.items()
    }
    _write_documents(folder / "corpus.jsonl", test.corpus)
    _write_queries(folder / "queries.jsonl", test.retrieval)
    _write_letters(folder, letters)
    _write_documents(folder / "train" / "corpus.jsonl", train.corpus)
    _write_queries(folder / "train" / "queries.jsonl", train.queries)
    write_rows(
        folder / "train" / "triples.jsonl",
        ({"query-id": t.query_id, "positives": t.positives, "negatives": t.negatives} for t in train.triples),
    )
    counts = {
        "queries": len(test.retrieval),
        "corpus": len(test.corpus),
        "qrels": _relevant(letters),
        "train_queries": len(train.queries),
        "train_corpus": len(train.corpus),
    }
    return counts, {
        **_positives_per_query(letters),
        **_query_statistics(test.retrieval),
        **_document_statistics(test.corpus),
    }


def _write_reranking(folder: Path, edition: MiniEdition) -> tuple[Counts, Statistics]:
    test, lists = edition.test, edition.lists
    used = {doc_id for candidates in lists.values() for doc_id in candidates.ids}
    corpus = {doc_id: document for doc_id, document in test.corpus.items() if doc_id in used}
    letters = {query_id: candidates.letters for query_id, candidates in lists.items()}
    _write_documents(folder / "corpus.jsonl", corpus)
    _write_queries(folder / "queries.jsonl", test.reranking)
    _write_letters(folder, letters)
    write_rows(
        folder / "top_ranked.jsonl",
        ({"query-id": query_id, "corpus-ids": candidates.ids} for query_id, candidates in lists.items()),
    )
    counts = {"queries": len(test.reranking), "corpus": len(corpus), "qrels": _relevant(letters)}
    per_letter = Counter(letter for row in letters.values() for letter in row.values())
    statistics: Statistics = {
        "candidates per query": 100,
        "letters of the candidates": ", ".join(f"{k} {per_letter[k]}" for k in "SABCD"),
    }
    return counts, {**_positives_per_query(letters), **_query_statistics(test.reranking), **statistics}


def _write_sts(folder: Path, edition: MiniEdition) -> tuple[Counts, Statistics]:
    test, train = edition.sts
    for name, pairs in (("test", test), ("train", train)):
        write_rows(
            folder / f"{name}.jsonl",
            ({"sentence1": p.sentence1, "sentence2": p.sentence2, "score": p.score} for p in pairs),
        )
    kinds = Counter(pair.kind for pair in test)
    return {"test": len(test), "train": len(train)}, {
        f"test pairs, {kind}": kinds[kind] for kind in REWRITE_KINDS
    }


def _write_documents(path: Path, corpus: Mapping[str, Document]) -> None:
    write_rows(path, ({"_id": doc_id, "title": d.title, "text": d.text} for doc_id, d in corpus.items()))


def _write_queries(path: Path, queries: Mapping[str, Query]) -> None:
    write_rows(path, ({"_id": query_id, "text": query.text} for query_id, query in queries.items()))


def _write_letters(folder: Path, letters: Mapping[str, Mapping[str, str]]) -> None:
    """Write ``qrels/test.tsv`` with the relevant pairs and ``grades.tsv`` with all judged pairs."""
    pairs = [(q, d, letter) for q, row in letters.items() for d, letter in sorted(row.items())]
    relevant = [f"{q}\t{d}\t1" for q, d, letter in pairs if letter in RELEVANT_GRADES]
    write_text(folder / "qrels" / "test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *relevant]) + "\n")
    rows = [f"{q}\t{d}\t{letter}" for q, d, letter in pairs]
    write_text(folder / "grades.tsv", "\n".join(["query-id\tcorpus-id\tgrade", *rows]) + "\n")


def _relevant(letters: Mapping[str, Mapping[str, str]]) -> int:
    return sum(letter in RELEVANT_GRADES for row in letters.values() for letter in row.values())


def _positives_per_query(letters: Mapping[str, Mapping[str, str]]) -> Statistics:
    sizes = Counter(len(positives(dict(row))) for row in letters.values())
    return {"queries by number of positives": ", ".join(f"{size}: {sizes[size]}" for size in sorted(sizes))}


def _query_statistics(queries: Mapping[str, Query]) -> Statistics:
    kinds = Counter(query.term_kind for query in queries.values())
    return {
        "queries by how they name the subject": ", ".join(f"{k} {kinds[k]}" for k in ("name", "alias", "lay"))
    }


def _document_statistics(corpus: Mapping[str, Document]) -> Statistics:
    registers = Counter(document.register for document in corpus.values())
    lengths = [len(document.text) for document in corpus.values()]
    return {
        "documents by register": ", ".join(f"{name} {registers[name]}" for name in sorted(registers)),
        "characters per document": f"{min(lengths)} to {max(lengths)}, mean {fmean(lengths):.0f}",
    }


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write JSON lines."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, with line feeds on every platform."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
