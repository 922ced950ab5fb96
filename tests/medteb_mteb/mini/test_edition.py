"""The whole mini edition: the packaged bytes, sizes, labels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.medteb_mteb.mini.task_files import TASKS, rows, table

from medteb_mteb.editions import STATISTICS, load_edition, verify
from medteb_mteb.mini import edition as edition_module
from medteb_mteb.mini.__main__ import main


def files_below(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.slow
def test_rebuilding_gives_the_packaged_bytes(packaged, edition, tmp_path, monkeypatch, capsys):
    """Cards and manifests included, and all but the statistics, which mteb computes from them."""
    monkeypatch.setattr(edition_module, "generate", {42: edition}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["mini", str(tmp_path)])
    main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(TASKS)
    built = files_below(tmp_path)
    expected = {
        name: data
        for name, data in files_below(packaged).items()
        if name.split("/")[0] in TASKS and STATISTICS not in name.split("/")
    }
    assert sorted(built) == sorted(expected)
    assert [name for name in built if built[name] != expected[name]] == []
    for task in TASKS:
        verify(load_edition(tmp_path / task))


def test_generator_needs_neither_mteb_nor_torch():
    code = (
        "import sys, medteb_mteb.mini; "
        "print(sorted({'mteb', 'torch', 'numpy', 'datasets', 'jieba', 'bm25s'} & set(sys.modules)))"
    )
    env = {**os.environ, "MEDTEB_AUTOLOAD": "0"}
    run = subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.thorough
def test_the_packaged_data_have_the_intended_sizes(packaged):
    retrieval, reranking, sts = (packaged / task for task in TASKS)
    assert len(rows(retrieval / "queries.jsonl")) == 300
    assert len(rows(retrieval / "corpus.jsonl")) == 5_000
    assert len(rows(reranking / "queries.jsonl")) == 300
    assert {len(row["corpus-ids"]) for row in rows(reranking / "top_ranked.jsonl")} == {100}
    assert len(rows(sts / "test.jsonl")) == 1_000
    assert len(rows(sts / "train.jsonl")) >= 5_000
    triples = rows(retrieval / "train" / "triples.jsonl")
    assert len(triples) >= 20_000
    assert len({triple["query-id"] for triple in triples}) == len(triples)
    assert sum(path.stat().st_size for path in packaged.rglob("*")) < 24 * 2**20


@pytest.mark.slow
def test_documents_are_distinct_and_80_to_400_characters(packaged, edition):
    for path in (packaged / "MedTEBRetrieval").rglob("corpus.jsonl"):
        documents = rows(path)
        assert all(80 <= len(document["text"]) <= 400 for document in documents)
        assert all(0 < len(document["title"]) <= 60 for document in documents)
        assert len({document["text"] for document in documents}) == len(documents)
        assert len({document["_id"] for document in documents}) == len(documents)
    registers = Counter(document.register for document in edition.test.corpus.values())
    assert len(registers) >= 6
    assert min(registers.values()) >= 100


@pytest.mark.parametrize("task", TASKS[:2])
def test_qrels_and_grades_agree_and_point_somewhere(packaged, task):
    folder = packaged / task
    queries = {row["_id"] for row in rows(folder / "queries.jsonl")}
    corpus = {row["_id"] for row in rows(folder / "corpus.jsonl")}
    header, relevant = table(folder / "qrels" / "test.tsv")
    assert header == ["query-id", "corpus-id", "score"]
    header, grades = table(folder / "grades.tsv")
    assert header == ["query-id", "corpus-id", "grade"]
    assert {tuple(row[:2]) for row in relevant} == {(q, d) for q, d, letter in grades if letter in "SA"}
    assert {row[0] for row in relevant} == queries
    assert {row[1] for row in grades} <= corpus
    assert set(Counter(row[0] for row in relevant).values()) <= {1, 2, 3, 4, 5, 6}
    assert {letter for *_, letter in grades} == set("SABCD")
