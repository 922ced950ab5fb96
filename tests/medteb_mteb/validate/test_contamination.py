"""Contamination of a live edition with made-up scores: planted effects, drift and near copies are found."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import ttest_ind
from tests.conftest import write_jsonl
from tests.medteb_mteb.compare.results import write_result

from mar_st.errors import MarError
from medteb_mteb.curation.edition.append import AppendSettings, append
from medteb_mteb.folders.live import read_live
from medteb_mteb.validate.contamination import MEASURES, ContaminationSettings, contamination

MONTHS = tuple(f"2026-0{number}" for number in range(1, 7))
QUERIES = 25
CHARACTERS = [chr(code) for code in range(0x4E00, 0x4E00 + 3000)]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Six months; the queries of the last one are longer."""
    folder, rng = tmp_path_factory.mktemp("live"), np.random.default_rng(0)
    (folder / "data" / "qrels").mkdir(parents=True)
    queries, documents, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for number, month in enumerate(MONTHS * QUERIES):
        length = rng.integers(8, 20) + 15 * (month == MONTHS[-1])
        text = "".join(rng.choice(CHARACTERS, length))
        queries.append({"_id": f"q{number}", "text": text, "date": month})
        documents.append({"_id": f"d{number}", "title": "", "text": text[::-1] + "答"})
        qrels += [
            f"q{number}\td{other}\t1" for other in range(number, max(-1, number - rng.integers(1, 4)), -1)
        ]
    write_jsonl(folder / "data" / "queries.jsonl", queries)
    write_jsonl(folder / "data" / "corpus.jsonl", documents)
    (folder / "data" / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n")
    append(AppendSettings(live=folder / "clinic", data=folder / "data", licence="cc-by-4.0"))
    return folder / "clinic"


@pytest.fixture
def results(live, tmp_path):
    """`leaky` gains .2 on the slices up to March; `fair` and `later` do not, and share its hard queries."""
    rng = np.random.default_rng(1)
    for month, entry in read_live(live).slices.items():
        common = rng.uniform(0.2, 0.6, QUERIES)
        ids = [json.loads(line)["_id"] for line in (live / month / "queries.jsonl").read_text().splitlines()]
        for model, gain in (("leaky", 0.2 * (month <= "2026-03")), ("fair", 0), ("later", 0)):
            values = common + gain + rng.normal(0, 0.03, QUERIES)
            write_result(tmp_path, model, f"clinic-{month}", values, ids=ids, data=entry.digest)
    return tmp_path


def test_a_planted_effect_is_found_at_the_cut_off_alone(live, results):
    cutoffs = {"leaky": "2026-03", "fair": "2025-12", "later": "2026-05"}
    found = contamination(ContaminationSettings(live=live, results=(results,), cutoffs=cutoffs))
    verdicts = [finding.verdict for finding in found.page().findings[2:]]
    assert verdicts == ["warning", "ok", "ok"]
    own = {one.cutoff: one for one in found.effects if one.model == "leaky" and not one.other}
    assert {month for month, one in own.items() if one.placebo} == {
        "2026-01",
        "2026-02",
        "2026-04",
        "2026-05",
    }
    for month, one in own.items():
        (value, low, high), planted = one.matched, 0.2 * (month == "2026-03")
        assert low <= planted <= high, month
        assert value == pytest.approx(planted, abs=0.08)
    stated = own["2026-03"]
    assert stated.queries == (3 * QUERIES, 3 * QUERIES)
    assert stated.raw[0] == pytest.approx(stated.before[0] - stated.after[0])
    # Against other models, only slices on one side of their cut-off count: all, and those up to May.
    against = {one.other: one for one in found.effects if one.model == "leaky" and one.other}
    assert {other: one.queries for other, one in against.items()} == {
        "fair": (3 * QUERIES, 3 * QUERIES),
        "later": (3 * QUERIES, 2 * QUERIES),
    }
    for one in against.values():
        assert one.raw[0] == pytest.approx(0.2, abs=0.03)
        assert one.matched.high - one.matched.low < stated.matched.high - stated.matched.low


def test_drift_of_the_queries_and_near_copies_in_training_are_found(live, tmp_path):
    texts = [
        json.loads(line)["text"] for line in (live / MONTHS[1] / "queries.jsonl").read_text().splitlines()
    ]
    rows = [{"query": texts[0] + "？", "positives": ["答"]}, {"query": texts[1], "positives": ["答"]}]
    training = write_jsonl(tmp_path / "triples.jsonl", [{**row, "negatives": ["否"]} for row in rows])
    found = contamination(ContaminationSettings(live=live, training=(str(training),)))
    assert [one["copies in training"] for one in found.slices] == [0, 2, 0, 0, 0, 0]
    lengths = {(month, MEASURES[0]) for month in MONTHS[1:]}
    assert {key for key in lengths if found.drift[key] < 0.05} == {(MONTHS[-1], MEASURES[0])}
    # A permutation test is close to a t-test, and Holm's correction only makes p larger.
    own, measures = found.queries.month, found.queries.measures[:, 1]
    others = {key: p for key, p in found.drift.items() if key[1] == MEASURES[1]}
    plain = [ttest_ind(measures[own == n], measures[own < n]).pvalue for n in range(1, 6)]
    assert all(p >= one - 0.01 for p, one in zip(others.values(), plain, strict=True))
    assert [one["documents"] for one in found.slices] == [len(MONTHS) * QUERIES] * 6


def test_the_command_prints_one_page(live, results, medteb):
    code, out, err = medteb("edition", "contamination", live, results, "--cutoff", "leaky=2026-03")
    assert code == 0, err
    assert "| 2026-03 | cut-off | 75 | 75 |" in out
    for cutoff in ("leaky=March", "nobody=2026-03"):
        code, _, err = medteb("edition", "contamination", live, results, "--cutoff", cutoff)
        assert (code, err.count("\n")) == (2, 1)


def test_results_of_other_data_are_refused(live, results):
    write_result(results, "old", "clinic-2026-01", np.full(QUERIES, 0.5), data="other")
    with pytest.raises(MarError, match="other data"):
        contamination(ContaminationSettings(live=live, results=(results,), cutoffs={"old": "2026-03"}))
