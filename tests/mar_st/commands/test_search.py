"""`mar search` with the packaged model on a part of the packaged edition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st import MAR
from mar_st.cli import app
from mar_st.encode.folder import write_vectors
from mar_st.errors import MarError
from mar_st.index.build import build_index
from mar_st.model.digest import space_of
from mar_st.model.names import model_folder
from tests.conftest import read_jsonl, write_jsonl, write_judged

TASK = Path(__file__).resolve().parents[3] / "tasks" / "MedTEBRetrieval"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The documents that 20 queries want and 300 others, encoded by mar-mini and indexed."""
    root = tmp_path_factory.mktemp("search")
    queries = read_jsonl(TASK / "queries.jsonl")[:20]
    names = {query["_id"] for query in queries}
    judged = [line.split() for line in (TASK / "qrels" / "test.tsv").read_text().splitlines()]
    judged = [row for row in judged if row[0] in names]
    wanted = {document for _, document, _ in judged}
    corpus = read_jsonl(TASK / "corpus.jsonl")
    corpus = [one for row, one in enumerate(corpus) if one["_id"] in wanted or row % 16 == 0]
    for row, one in enumerate(corpus):
        one["department"] = ("内科", "外科")[row % 2]
    write_jsonl(root / "corpus.jsonl", corpus)
    write_jsonl(root / "queries.jsonl", queries)
    write_judged(root, judged, "test.tsv")
    model = MAR.from_pretrained(model_folder("mar-mini"), device="cpu")
    vectors = model.encode_corpus(corpus, show_progress_bar=False)
    ids, space = [one["_id"] for one in corpus], space_of(model_folder("mar-mini"))
    folder = write_vectors(root / "vectors", ids, vectors, model="mar-mini", space=space)
    build_index(folder, root / "index", corpus=root / "corpus.jsonl", kind="exact", progress=False)
    texts = [query["text"] for query in queries]
    scores = model.encode_queries(texts, show_progress_bar=False) @ vectors.T
    return root, corpus, texts, scores


def run(*words: Any) -> Any:
    result = CliRunner().invoke(app, ["search", *map(str, words)])
    if isinstance(result.exception, MarError):
        raise result.exception
    return result


def test_one_query_prints_its_hits(data):
    root, corpus, texts, scores = data
    hits = json.loads(run(root / "index", texts[0], "-k", 3, "--json").stdout)["hits"]
    best = np.argsort(-scores[0])[:3]
    assert [hit["id"] for hit in hits] == [corpus[row]["_id"] for row in best]
    assert [hit["score"] for hit in hits] == pytest.approx(scores[0][best], abs=1e-4)
    words = ("--encoder", "mar-mini", "-k", 3, "--hybrid", "--where", "department=外科")
    out = run(root / "index", texts[0], *words).stdout
    assert "department=外科" in out
    assert "department=内科" not in out
    assert "[dense" in out


def test_a_run_is_written_as_its_suffix_says_and_scored(data):
    import pytrec_eval

    from mar_st.data.trec import read_run

    root, corpus, _, scores = data
    for file in ("run.trec", "run.json"):
        words = ("--queries", root / "queries.jsonl", "--out", root / "runs" / file)
        printed = json.loads(run(root / "index", *words, "--qrels", root / "test.tsv", "--json").stdout)
    names = [one["_id"] for one in corpus]
    results = json.loads((root / "runs" / "run.json").read_text(encoding="utf-8"))
    assert read_run(root / "runs" / "run.trec", documents=set(names)) == results
    assert [len(one) for one in results.values()] == [100] * 20
    qrels = {}
    for line in (root / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split()
        qrels.setdefault(query, {})[document] = int(grade)
    whole = {
        query: dict(zip(names, row.astype(float).tolist(), strict=True))
        for query, row in zip(results, scores, strict=True)
    }
    measured = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100"}).evaluate(whole)
    for shown, name in (("ndcg@10", "ndcg_cut_10"), ("recall@100", "recall_100")):
        assert printed[shown] == pytest.approx(np.mean([one[name] for one in measured.values()]), abs=1e-6)
    assert printed["ndcg@10"] > 0.5


def test_options_that_do_not_go_together_are_refused(data, tmp_path):
    root, *_ = data
    index = root / "index"
    for words in ((), ("x", "--queries", "y"), ("x", "--out", root / "run.json"), (" \u3000\n",)):
        assert run(index, *words).exit_code == 2
    with pytest.raises(MarError, match="suffix"):
        run(root / "nowhere", "--queries", "none.jsonl", "--out", root / "run.txt")
    with pytest.raises(MarError, match="not an index"):
        run(root, "x")
    folder = write_vectors(tmp_path / "vectors", ["a"], np.ones((1, 128), np.float32))
    build_index(folder, tmp_path / "index", kind="exact", progress=False)
    with pytest.raises(MarError, match="Give --encoder"):
        run(tmp_path / "index", "x")
