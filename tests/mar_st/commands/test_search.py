"""`mar search` with the packaged model on a part of the packaged edition."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer

from mar_st import MAR
from mar_st.commands.search import search
from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.index import IndexingError, build_index
from mar_st.model.digest import space_of
from mar_st.model.names import model_folder

TASK = Path(__file__).resolve().parents[3] / "tasks" / "MedTEBRetrieval"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The documents that 20 queries want and 300 others, encoded by mar-mini and indexed."""
    root = tmp_path_factory.mktemp("search")
    queries = (TASK / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:20]
    names = {json.loads(line)["_id"] for line in queries}
    grades = [
        line for line in (TASK / "qrels" / "test.tsv").read_text().splitlines() if line.split()[0] in names
    ]
    wanted = {line.split()[1] for line in grades}
    corpus = [json.loads(line) for line in (TASK / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    corpus = [one for row, one in enumerate(corpus) if one["_id"] in wanted or row % 16 == 0]
    for row, one in enumerate(corpus):
        one["department"] = ("内科", "外科")[row % 2]
    (root / "corpus.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in corpus))
    (root / "queries.jsonl").write_text("".join(queries), encoding="utf-8")
    (root / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(grades) + "\n")
    model = MAR.from_pretrained(model_folder("mar-mini"), device="cpu")
    vectors = model.encode_corpus(corpus, show_progress_bar=False)
    folder = write_vectors(
        root / "vectors",
        [one["_id"] for one in corpus],
        vectors,
        model="mar-mini",
        space=space_of(model_folder("mar-mini")),
    )
    build_index(folder, root / "index", corpus=root / "corpus.jsonl", kind="exact", progress=False)
    texts = [json.loads(line)["text"] for line in queries]
    scores = model.encode_queries(texts, show_progress_bar=False) @ vectors.T
    return root, corpus, texts, scores


def test_one_query_prints_its_hits(data, capsys):
    root, corpus, texts, scores = data
    search(str(root / "index"), texts[0], k=3, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["match"] is None
    hits = answer["hits"]
    best = np.argsort(-scores[0])[:3]
    assert [hit["id"] for hit in hits] == [corpus[row]["_id"] for row in best]
    assert [hit["score"] for hit in hits] == pytest.approx(scores[0][best], abs=1e-4)
    search(str(root / "index"), texts[0], encoder="mar-mini", k=3, hybrid=True, where="department=外科")
    out = capsys.readouterr().out
    assert "department=外科" in out
    assert "department=内科" not in out
    assert "[dense" in out


def test_the_suffix_decides_the_form_of_a_run(data, capsys):
    from mar_st.data.trec import read_run

    root, corpus, _, _ = data
    for file in ("run.trec", "run.json"):
        search(
            str(root / "index"),
            queries=str(root / "queries.jsonl"),
            out=root / "forms" / file,
            k=5,
            as_json=True,
        )
    lines = (root / "forms" / "run.trec").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 100
    assert all(len(line.split()) == 6 and line.split()[1] == "Q0" for line in lines)
    run = read_run(root / "forms" / "run.trec", documents={one["_id"] for one in corpus})
    assert run == json.loads((root / "forms" / "run.json").read_text(encoding="utf-8"))
    with pytest.raises(MarError, match="the suffix decides"):
        search(str(root / "nowhere"), queries="none.jsonl", out=root / "run.txt")


def test_a_run_is_written_and_scored(data, capsys):
    import pytrec_eval

    root, corpus, _, scores = data
    search(
        str(root / "index"),
        queries=str(root / "queries.jsonl"),
        out=root / "runs" / "run.json",
        qrels=root / "test.tsv",
        as_json=True,
    )
    printed = json.loads(capsys.readouterr().out)
    run = json.loads((root / "runs" / "run.json").read_text())
    assert len(run) == 20
    assert all(len(results) == 100 for results in run.values())
    qrels = {}
    for line in (root / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split()
        qrels.setdefault(query, {})[document] = int(grade)
    names = [one["_id"] for one in corpus]
    whole = {
        query: dict(zip(names, row.astype(float).tolist(), strict=True))
        for query, row in zip(run, scores, strict=True)
    }
    measured = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100"}).evaluate(whole)
    for shown, name in (("ndcg@10", "ndcg_cut_10"), ("recall@100", "recall_100")):
        assert printed[shown] == pytest.approx(np.mean([one[name] for one in measured.values()]), abs=1e-6)
    assert printed["ndcg@10"] > 0.5


def test_options_that_do_not_go_together_are_refused(data):
    root, *_ = data
    for options in ({}, {"query": "x", "queries": "y"}, {"query": "x", "out": root / "run.json"}):
        with pytest.raises(typer.BadParameter, match="quer"):
            search(str(root / "index"), **options)
    with pytest.raises(typer.BadParameter, match="--rerank-top requires --rerank"):
        search(str(root / "index"), "x", rerank_top=5)
    with pytest.raises(IndexingError, match="not an index"):
        search(str(root), "x")


@pytest.mark.parametrize("blank", ["", " \u3000\n"])
def test_a_blank_query_is_refused(data, blank):
    with pytest.raises(typer.BadParameter, match="the query is blank"):
        search(str(data[0] / "index"), blank)


def test_an_index_that_names_no_model_needs_an_encoder(data, tmp_path):
    folder = write_vectors(tmp_path / "vectors", ["a"], np.ones((1, 128), np.float32))
    build_index(folder, tmp_path / "index", kind="exact", progress=False)
    with pytest.raises(IndexingError, match="Give --encoder"):
        search(str(tmp_path / "index"), "x")
