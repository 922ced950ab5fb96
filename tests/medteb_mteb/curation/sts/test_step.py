"""The step over HTTP, with the rule-based rewriter behind the server that fails in every way."""

from __future__ import annotations

import json
import random

import pytest
from fault_server import FaultEndpoint, rules
from llm_server import llm_at, running, serving
from pydantic import ValidationError

from mar_st.data.training import read_source
from mar_st.errors import MarError
from mar_st.recipes.schema import Data
from medteb_mteb.curation.step import Estimate
from medteb_mteb.curation.sts.step import STS
from medteb_mteb.editions import load_edition, verify

PAIRS = [
    ("高血压", "血压高"),
    ("糖尿病", "消渴症"),
    ("拉肚子", "腹泻"),
    ("发烧", "发热"),
    ("乳腺癌", "乳癌"),
    ("脑卒中", "中风"),
    ("近视", "近视眼"),
    ("尿毒症", "肾衰竭"),
]
ASKED = [
    "{}的人早上能不能空腹跑步",
    "听说{}以后要少熬夜是真的吗",
    "老人{}半年了怎么护理比较好",
    "{}会不会影响孩子长个子",
    "家里人都有{}，我以后也会有吗",
]
WORDS = random.Random(1)
#: Each has words of its own, so that none is near another.
QUERIES = [
    f"{asked.format(term)}，{''.join(chr(WORDS.randrange(0x4E00, 0x9000)) for _ in range(25))}"
    for term, _ in PAIRS
    for asked in ASKED
]


def answer(messages):
    return json.dumps(rules.rewritten(messages), ensure_ascii=False)


@pytest.fixture
def make(tmp_path, write, run_step):
    """Runs the step over these queries."""
    terms = tmp_path / "terms.tsv"
    terms.write_text("origin\treplace\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    rows = [{"_id": f"q{i}", "text": text} for i, text in enumerate([*QUERIES, "肚子疼怎么办"])]
    paths = {"dictionary": terms, "queries": write(tmp_path / "queries.jsonl", rows)}
    common = {"edition": "clinic", "licence": "cc-by-4.0", "test": 0.4}
    return lambda url, out="out", **options: run_step(
        STS, out, **(paths | common | {"llm": llm_at(url)} | options)
    )


def test_an_edition_and_training_rows_are_made_of_the_rewrites(make, tmp_path, rows_of):
    with serving(answer) as url:
        counts = make(url)
    out = tmp_path / "out"
    assert counts["details"]["bought"] == len(QUERIES)
    assert counts["details"]["dropped"] == {"no-term": 1}
    edition = load_edition(out / "MedTEBSTS")
    verify(edition)
    log = {row["query"]: row for row in rows_of(out / "rewrites.jsonl")}
    test = rows_of(out / "MedTEBSTS" / "test.jsonl")
    assert len(test) == edition.counts["test"] == counts["rows"] == 15  # three entries of five queries
    for row in test:
        logged = log[row["sentence1"]]
        assert logged["use"] == "test"
        assert row["sentence2"] == logged[logged["drawn"]]
        assert row["score"] == float(logged["drawn"] == "positive")
    assert 0 < sum(row["score"] for row in test) < len(test)
    data = Data(name="sts", path=str(out / "train" / "sts.jsonl"), prompt="STS", symmetric=True)
    triples = list(read_source(data, 0).triples)
    assert len(triples) == counts["details"]["triples"] > 15
    for triple in triples:
        logged = log[triple.query]
        assert logged["use"] == "train"
        assert tuple(triple.positives) == (logged["positive"],)
        assert tuple(triple.negatives) == (logged["negative-1"], logged["negative-2"])
    terms = {use: {row["origin"] for row in log.values() if row["use"] == use} for use in ("test", "train")}
    assert terms["test"].isdisjoint(terms["train"])
    assert [row["reason"] for row in rows_of(out / "dropped.jsonl")] == ["no-term"]


def test_bad_rewrites_are_counted_and_not_used(make, tmp_path, rows_of):
    def lazy(messages):
        data = rules.read_input(messages)
        good = rules.rewritten(messages)
        term = data["origin"]
        if term == "高血压":
            good["positive"] = data["query_pairs"]["origin"]  # the term was not replaced
        elif term == "糖尿病":
            good["negative-1"] = data["query_pairs"]["replace"] + "？"  # the intent is the same
        elif term == "发烧":
            return "抱歉，我无法回答。"
        return json.dumps(good, ensure_ascii=False)

    with serving(lazy) as url:
        counts = make(url)
    assert counts["details"]["failed"] == {"no-json": 5}
    assert counts["details"]["rewrites"]["positive"]["term-missing"] == 5
    assert counts["details"]["rewrites"]["negative-1"]["unchanged"] == 5
    log = rows_of(tmp_path / "out" / "rewrites.jsonl")
    assert not any(row["use"] == "test" and row.get("dropped") for row in log)
    reasons = [row["reason"] for row in rows_of(tmp_path / "out" / "dropped.jsonl")]
    assert reasons == ["no-term", *["failed-no-json"] * 5]


def test_faults_and_a_budget_change_no_byte(make, tmp_path, content):
    with serving(answer) as url:
        make(url, "whole")
    server = FaultEndpoint(answer=answer, rate=0.05, line=("429", "500", "cut"), answers=(), seed=2)
    with running(server) as url:
        llm = {"retries": 30, "price_in": 1000.0, "budget": 3.0, "concurrency": 2}
        counts = make(url, "other/out", llm=llm_at(url, **llm))
        assert "budget" in counts["stopped"]
        assert not (tmp_path / "other" / "out" / "MedTEBSTS").exists()
        made = server.made
        assert 0 < made < len(QUERIES)
        make(url, "other/out")
    assert server.made == len(QUERIES)
    assert content(tmp_path / "other" / "out") == content(tmp_path / "whole")


def test_an_estimate_bounds_the_requests(tmp_path):
    paths = {name: tmp_path / name for name in ("dictionary", "queries", "out")}
    settings = STS.settings(**paths, edition="e", licence="mit", llm=llm_at("http://127.0.0.1:9/v1"))
    assert STS.estimate(settings, {"queries": Estimate(41, 400), "dictionary": Estimate(8)}).requests == 41


def test_what_cannot_become_a_test_is_refused(make, tmp_path, write):
    server = FaultEndpoint(answer=answer)
    with running(server) as url:
        with pytest.raises(MarError, match="test is empty"):
            make(url, "a", test=2)
        near = write(tmp_path / "train.jsonl", [{"query": text, "positive": "x"} for text in QUERIES])
        with pytest.raises(MarError, match="near one of a training set"):
            make(url, "b", training=(near,))
        with pytest.raises(ValidationError):
            make(url, "c", test=0)
        with pytest.raises(MarError, match="anonymize"):
            make(url, "d", already_anonymous=False)
    assert server.made == 0  # nothing was paid
