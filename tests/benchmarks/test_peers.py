"""The comparison of query encoders."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import peers
import peers_engines
import pytest
from peers_table import firsts, table
from query_sides import Apart

ENGINES = Path(peers_engines.__file__)

#: Of a rehearsal; each takes seconds.
REHEARSED_ENGINES = ["onnxruntime", "mar query-1 openvino-fp32", "mar query-lookup numpy"]


def result(name, ndcg, p50, **others):
    return {
        "name": name, "p50_ms": p50, "p95_ms": 2 * p50, "per_second": 1000 / p50, "rss_mib": 300,
        "peak_mib": 400, "model_mib": 70.5, "cosine_mean": 0.99, "cosine_min": 0.9, "ndcg@10": ndcg, **others,
    }  # fmt: skip


class Side:
    """Answers as an engine's process does; `seconds` per query, and what it was asked."""

    def __init__(self, seconds, log):
        self.seconds, self.log, self.turn = seconds, log, 0

    def call(self, name, *arguments):
        self.log.append((self, name, arguments))
        if name == "many":
            return {"per_second": 1 / self.seconds(0), "callers_p50_ms": 1.0, "least_cosine": 0.5}
        first, count = arguments
        self.turn += 1
        return [self.seconds(self.turn)] * max(0, min(count, 60 - first))


def test_ratios_compare_engines_in_the_same_turn(monkeypatch):
    monkeypatch.setattr(peers, "REST_SECONDS", 0)
    log = []
    # The processor becomes ten times slower in every turn, for both.
    baseline, engine = Side(lambda turn: 0.03 * 10**turn, log), Side(lambda turn: 0.01 * 10**turn, log)
    timings = peers.in_turns({"baseline": baseline, "engine": engine}, 60, 3)
    assert timings["times_faster"] == timings["times_as_many"] == 3
    assert timings["times_faster_range"] == [3, 3]
    assert timings["p50_ms"] < timings["baseline"]["p50_ms"]
    assert [side for side, *_ in log[:4]] == [baseline, engine] * 2
    asked = [arguments for side, name, arguments in log if side is engine and name == "single"]
    assert asked == [(0, 25), (25, 25), (50, 25)]


def test_the_best_of_all_and_of_accurate_engines_are_named():
    results = [
        result("baseline", 0.53, 20), result("quick", 0.40, 1, rss_mib=20),
        result("fair", 0.527, 5, times_faster=4.0, times_faster_range=[3.5, 4.5]),
    ]  # fmt: skip
    heading, _, *lines = firsts(results, 0.005)
    assert "of the 2 with nDCG@10 of 0.5250 or more" in heading
    assert "| p50 ms | quick | fair |" in lines
    assert "| RSS MiB | quick | baseline, fair |" in lines
    assert "| nDCG@10 | baseline | baseline |" in lines
    settings = dict.fromkeys(("machine", "threads", "callers", "queries", "documents", "task"), 1)
    text = table(settings, results, {"gone": "not installed: pip install gone"}, 0.005)
    rows = [line for line in text.partition("| first in")[0].splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {13}
    assert "| fair | 5 | 10 | 4 (3.5-4.5) | 200 |" in text
    assert "| gone | not installed: pip install gone |" in text


def test_an_engine_that_is_not_installed_says_which_package_is_missing(tmp_path):
    (tmp_path / "fastembed.py").write_text("raise ImportError('No module named fastembed')")
    texts = tmp_path / "texts.json"
    texts.write_text(json.dumps(["咳"]))
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"kind": "fastembed", "texts": str(texts), "callers": 1}))
    engine = Apart(
        [sys.executable, str(ENGINES), str(request)], "fastembed", log=tmp_path / "log",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    engine.kill()
    assert engine.ready == {"missing": "No module named fastembed"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "x"], "give --model and --task"),
        (["--model", "x", "--task", "x", "--python", "fastembod=/bin/sh"], "not fastembod"),
        (["--model", "x", "--task", "x", "--python", "fastembed=/no/such/python"], "not fastembed"),
    ],
)
def test_wrong_options_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        peers.parse(arguments)
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """A folder with a rehearsal, and the arguments that made it."""
    out = tmp_path_factory.mktemp("peers") / "out"
    arguments = ["--tiny", "--out", str(out), "--threads", "1", "--seconds", "0.6", "--callers", "4",
                 "--forms", "openvino-fp32", "--only", *REHEARSED_ENGINES]  # fmt: skip
    if find_spec("fastembed") is None:
        arguments.append("fastembed")
    peers.main(arguments)
    return out, arguments


def read(out):
    return json.loads((out / "peers.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_engines_give_the_vectors_of_their_weights(rehearsed):
    out, _ = rehearsed
    entries = {entry["name"]: entry for entry in read(out)["results"]}
    assert set(entries) == {peers.BASELINE, *REHEARSED_ENGINES}
    for entry in entries.values():
        assert entry["cosine_min"] > (0.999 if "lookup" in entry["name"] else 0.99999)
        assert entry["least_cosine"] > 0.9999
        assert 0 < entry["p50_ms"] <= entry["p95_ms"]
        assert 10 < entry["rss_mib"] <= entry["peak_mib"]
        assert entry["model_mib"] > 0
    baseline, plain = entries[peers.BASELINE], entries["onnxruntime"]
    assert plain["ndcg@10"] == pytest.approx(baseline["ndcg@10"], abs=0.01)
    assert plain["rss_mib"] < baseline["rss_mib"]
    assert plain["times_faster"] > 0


@pytest.mark.slow
def test_missing_packages_are_listed(rehearsed):
    if find_spec("fastembed") is not None:
        pytest.skip("fastembed is installed")
    out, _ = rehearsed
    note = read(out)["notes"]["fastembed"]
    assert note == "not installed (No module named 'fastembed'): pip install fastembed"
    assert note in (out / "peers.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_second_call_measures_only_missing_engines(rehearsed, capsys):
    out, arguments = rehearsed
    before = {path.name: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    (out / "results" / "onnxruntime.json").unlink()
    peers.main([argument for argument in arguments if argument != "fastembed"])
    after = {path.name: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"onnxruntime.json"}
    with pytest.raises(SystemExit, match="holds results with another callers"):
        peers.main([*arguments, "--callers", "5"])
