from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from statistics import correlation

import pytest

from medteb_mteb.editions import STATISTICS, load_edition, verify
from medteb_mteb.mini import edition as edition_module
from medteb_mteb.mini.__main__ import main
from medteb_mteb.mini.card import measured
from medteb_mteb.mini.labels import grade
from medteb_mteb.mini.measure import (
    average_precision,
    measure,
    measure_retrieval,
    ndcg_at_10,
    nonblank_jieba_words,
)
from medteb_mteb.mini.negatives import bigram_cosine, bigrams

TASKS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def table(path):
    header, *lines = path.read_text("utf-8").splitlines()
    return header.split("\t"), [line.split("\t") for line in lines]


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


@pytest.mark.slow
def test_another_seed_gives_other_data(edition):
    from medteb_mteb.mini.retrieval import build_test

    other = build_test(edition.world, 43)
    assert {q.text for q in other.retrieval.values()} != {q.text for q in edition.test.retrieval.values()}


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


def test_reranking_uses_documents_of_the_retrieval_corpus_in_random_order(packaged):
    whole = {row["_id"]: row for row in rows(packaged / "MedTEBRetrieval" / "corpus.jsonl")}
    folder = packaged / "MedTEBReranking"
    corpus = rows(folder / "corpus.jsonl")
    assert all(whole[row["_id"]] == row for row in corpus)
    lists = {row["query-id"]: row["corpus-ids"] for row in rows(folder / "top_ranked.jsonl")}
    assert {doc_id for ids in lists.values() for doc_id in ids} == {row["_id"] for row in corpus}
    assert all(len(set(ids)) == 100 for ids in lists.values())
    relevant = {tuple(row[:2]) for row in table(folder / "qrels" / "test.tsv")[1]}
    places = [rank for q, ids in lists.items() for rank, d in enumerate(ids) if (q, d) in relevant]
    assert len(places) == len(relevant)
    assert 40 < sum(places) / len(places) < 60


@pytest.mark.slow
def test_no_positive_is_about_another_subject_or_question(edition):
    """Every unlabelled document would be graded B, C or D; every positive shares subject and intent."""
    test, world = edition.test, edition.world
    for query in list(test.retrieval.values())[:60]:
        for document in test.corpus.values():
            if grade(world, query.cell, document) in "SA":
                assert document.entity == query.cell.entity
                intents = {cell.intent for cell in document.answers}
                assert query.cell.intent in intents or (
                    query.cell.intent == "treatment" and "drugs" in intents
                )


@pytest.mark.slow
def test_queries_meet_their_near_misses(edition):
    """The corpus holds wrong answers about the subject, and the same question answered for others."""
    test, world = edition.test, edition.world
    wrong = elsewhere = 0
    for query in test.retrieval.values():
        same = [d for d in test.corpus.values() if d.entity == query.cell.entity]
        wrong += any(grade(world, query.cell, d) == "B" for d in same)
        elsewhere += any(
            cell.intent == query.cell.intent and d.entity != query.cell.entity
            for d in test.corpus.values()
            for cell in d.answers
        )
    assert wrong >= 0.97 * len(test.retrieval)
    assert elsewhere == len(test.retrieval)


@pytest.mark.slow
def test_train_and_tests_are_disjoint(edition):
    test, train = edition.test, edition.train
    tests = [*test.retrieval.values(), *test.reranking.values()]
    assert len({query.text for query in tests}) == 600
    assert len({query.cell for query in tests}) == 600
    trained = list(train.queries.values())
    assert not {query.text for query in tests} & {query.text for query in trained}
    assert not {query.pair for query in tests} & {query.pair for query in trained}
    assert not {d.text for d in test.corpus.values()} & {d.text for d in train.corpus.values()}
    held_out = {query.pattern for query in tests} - {query.pattern for query in trained}
    assert len(held_out) >= 40
    sts_test, sts_train = edition.sts
    assert not {s for p in sts_test for s in (p.sentence1, p.sentence2)} & {
        s for p in sts_train for s in (p.sentence1, p.sentence2)
    }
    assert not {u for p in sts_test for u in p.used} & {u for p in sts_train for u in p.used}
    sentences = {s for p in (*sts_test, *sts_train) for s in (p.sentence1, p.sentence2)}
    assert not sentences & {query.text for query in (*tests, *trained)}


@pytest.mark.slow
def test_train_teaches_every_tested_term(edition):
    """Terms of the tests occur in train queries, with other patterns."""
    trained = {query.term for query in edition.train.queries.values()}
    tested = {query.term for query in (*edition.test.retrieval.values(), *edition.test.reranking.values())}
    assert tested <= trained


@pytest.mark.slow
def test_triples_are_right_and_hard(edition):
    train, world = edition.train, edition.world
    same_subject = 0
    for triple in train.triples:
        cell = train.queries[triple.query_id].cell
        assert triple.positives
        assert len(triple.negatives) >= 3
        assert len(set(triple.negatives)) == len(triple.negatives)
        assert all(grade(world, cell, train.corpus[d]) in "SA" for d in triple.positives)
        letters = [grade(world, cell, train.corpus[d]) for d in triple.negatives]
        assert not {"S", "A"} & set(letters)
        same_subject += "B" in letters
    assert same_subject >= 0.95 * len(train.triples)


@pytest.mark.slow
def test_sts_follows_the_published_construction(edition):
    world = edition.world
    owner = {}
    for entity in world.entities.values():
        owner |= dict.fromkeys((entity.name, *entity.aliases, *entity.lay), entity.key)
    for pairs in edition.sts:
        shares = Counter(pair.kind for pair in pairs)
        assert max(shares.values()) - min(shares.values()) <= 2
        for pair in pairs:
            (term1, template1), (term2, template2) = pair.used
            assert owner[term1] == owner[term2]
            same_intent = template1.split(".")[2] == template2.split(".")[2]
            assert same_intent == (pair.kind == "positive") == (pair.score == 1.0)
            assert (term1 == term2) == (pair.kind == "negative-2")
            if pair.kind == "positive":
                assert abs(len(pair.sentence2) - len(pair.sentence1)) <= 0.3 * len(pair.sentence1)
            assert pair.sentence1.endswith("？")
            assert pair.sentence2.endswith("？")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["test", "train"])
def test_sts_is_not_solved_by_overlap(packaged, name):
    pairs = rows(packaged / "MedTEBSTS" / f"{name}.jsonl")
    overlap = [bigram_cosine(pair["sentence1"], pair["sentence2"]) for pair in pairs]
    characters = [
        len(set(pair["sentence1"]) & set(pair["sentence2"])) / len(set(pair["sentence1"] + pair["sentence2"]))
        for pair in pairs
    ]
    labels = [pair["score"] for pair in pairs]
    assert abs(correlation(overlap, labels)) < 0.35
    assert abs(correlation(characters, labels)) < 0.35


@pytest.mark.slow
def test_bm25_is_in_the_window(packaged):
    pytest.importorskip("bm25s")
    pytest.importorskip("jieba")
    ndcg = measure_retrieval(packaged / "MedTEBRetrieval", nonblank_jieba_words)
    assert 0.35 <= ndcg <= 0.60
    # Another version of jieba may cut a few words differently.
    assert ndcg == pytest.approx(measured()["MedTEBRetrieval"]["nDCG@10 of BM25 over jieba words"], abs=0.003)


@pytest.mark.slow
def test_recorded_baselines_are_those_of_the_packaged_data(packaged):
    for task, numbers in measure(packaged).items():
        assert numbers == pytest.approx(measured()[task], abs=0.003)


def test_cards_state_the_recorded_baselines(packaged):
    for task in TASKS:
        card = (packaged / task / "README.md").read_text("utf-8")
        assert measured()[task]
        for name, value in measured()[task].items():
            assert f"| {name} | {value} |" in card


def test_measures_of_known_rankings_have_the_expected_values():
    assert ndcg_at_10(["a", "b", "c"], {"a"}) == 1.0
    assert ndcg_at_10(["x", "a"], {"a"}) == pytest.approx(0.63093, abs=1e-5)
    assert average_precision(["x", "a", "b"], {"a", "b"}) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert bigrams("一 二三") == ["一二", "二三"]
    assert bigram_cosine("头疼怎么办", "头疼怎么办") == pytest.approx(1.0)
    assert bigram_cosine("头疼", "发烧") == 0.0


def test_cards_say_that_the_data_is_synthetic_first(packaged):
    for task in TASKS:
        _, header, body = (packaged / task / "README.md").read_text("utf-8").split("---\n", 2)
        first = body.strip().splitlines()[0]
        assert "Synthetic" in first
        assert "not for ranking models" in first
        assert "license: apache-2.0" in header
        for line in header.splitlines():
            if line.strip().startswith("path: "):
                assert (packaged / task / line.split("path: ")[1]).is_file()
