from __future__ import annotations

import json
import math

import pytest

from medteb_mteb.validate.clusters import mean_of_queries
from medteb_mteb.validate.pooling import holes, pool_bias

SECOND = 1 / math.log2(3)


@pytest.mark.parametrize(
    ("orders", "verdict", "share"),
    [
        (["pn"], "ok", 1.0),
        (["pnu"], "warning", 2 / 3),
        (["pn", "up"], "warning", 1 / 2),
        (["u"], "fail", 0.0),
    ],
)
def test_the_run_with_most_holes_decides(look, write_run, orders, verdict, share):
    finding = look(holes, runs=[write_run(order, order) for order in orders])
    assert (finding.verdict, finding.numbers[f"{orders[-1]}, judged@10"]) == (
        verdict,
        pytest.approx(share, abs=1e-4),
    )
    assert f"{share:.1%} of the first 10 documents of {orders[-1]}" in finding.reason
    assert len(finding.table.rows) == len(orders)


def test_holes_are_not_known_without_negatives(look, folder, write_run):
    (folder / "judged_negatives.tsv").unlink()
    finding = look(holes, runs=[write_run("run", "up")])
    assert finding.verdict == "not known"
    assert "no judged negatives" in finding.reason
    ((_, score, *rest),) = finding.table.rows
    assert score.startswith(f"{SECOND:.4f} [")
    assert rest == ["not known", "-", "-"]


def test_a_score_has_no_interval_if_all_queries_are_of_one_cluster(look, folder, write_run):
    rows = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    equal = [json.dumps({**json.loads(row), "text": "头疼"}) + "\n" for row in rows]
    (folder / "queries.jsonl").write_text("".join(equal), encoding="utf-8")
    finding = look(holes, runs=[write_run("run", "up")])
    assert finding.table.rows[0][1] == f"{SECOND:.4f}"


def test_bias_is_what_a_retriever_loses_without_its_own_documents(look, add, write_pools):
    for i in range(12):
        add("qrels/test.tsv", f"q{i}\tu{i}\t1")
    # The dense one alone found `u`, a positive; without it `p` at rank 2 is all that it has.
    finding = look(pool_bias, pools=write_pools(bm25="pn", dense="up"))
    assert finding.numbers["dense, loss of nDCG@10"] == pytest.approx(1 - SECOND, abs=1e-4)
    assert finding.numbers["dense, judged@10 without it"] == 0.5
    # BM25 alone found only a negative, and the positives that it misses stay.
    assert finding.numbers["bm25, loss of nDCG@10"] == 0
    assert finding.verdict == "fail"
    # Every query loses the same, so that no resample of them says otherwise.
    assert finding.numbers["dense, loss of nDCG@10, low"] == pytest.approx(1 - SECOND, abs=1e-4)
    assert finding.numbers["dense, loss of nDCG@10, high"] == pytest.approx(1 - SECOND, abs=1e-4)
    assert finding.reason.startswith("dense would lose 0.3691 of nDCG@10 [0.3691, 0.3691] had")
    assert "; 50.0% of the first 10 documents of bm25 would be judged; the order" in finding.reason


def test_the_interval_of_a_loss_is_over_clusters_of_queries(look, add, write_pools):
    for i in range(0, 12, 2):  # half of the queries lose
        add("qrels/test.tsv", f"q{i}\tu{i}\t1")
    pools = write_pools(bm25="pn", dense="up")
    numbers = look(pool_bias, pools=pools).numbers
    material = look(lambda material: material, pools=pools)
    losses = {f"q{i}": 0.0 if i % 2 else 1 - SECOND for i in range(12)}
    expected = mean_of_queries(material, losses)
    for end, value in (("", expected.value), (", low", expected.low), (", high", expected.high)):
        assert numbers[f"dense, loss of nDCG@10{end}"] == pytest.approx(value, abs=1e-4)
    assert 0 <= expected.low < expected.value < expected.high


def test_pools_without_documents_of_a_single_retriever_have_no_bias(look, write_pools):
    finding = look(pool_bias, pools=write_pools(bm25="pn", dense="np"))
    assert finding.verdict == "ok"
    assert finding.numbers["order of the retrievers changes"] == "no"
    assert [row[3] for row in finding.table.rows] == ["+0.0000 [+0.0000, +0.0000]"] * 2


def test_without_negatives_only_the_loss_is_known(look, folder, write_pools):
    (folder / "judged_negatives.tsv").unlink()
    finding = look(pool_bias, pools=write_pools(bm25="pn", dense="np"))
    assert finding.verdict == "ok"
    assert finding.numbers["dense, judged@10 without it"] is None
    assert finding.reason.startswith(
        "no retriever would lose nDCG@10 had it not contributed to the pools; the"
    )


def test_queries_that_lose_their_last_positive_are_counted(look, write_pools):
    finding = look(pool_bias, pools=write_pools(bm25="p", dense="n"))
    assert {row[0]: row[5] for row in finding.table.rows} == {"bm25": "12", "dense": "0"}


def test_bias_is_not_known_without_pools_of_two_retrievers(look, write_pools):
    assert look(pool_bias).verdict == "not known"
    finding = look(pool_bias, pools=write_pools(bm25="pn"))
    assert (finding.verdict, "one retriever alone" in finding.reason) == ("not known", True)
