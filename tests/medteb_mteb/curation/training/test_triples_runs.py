"""Runs that stop, fail, are killed or given again, and the command."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import yaml
from fault_server import FaultEndpoint, rules
from llm_server import llm_at, running, serving

from medteb_mteb.commands.triples import triples as triples_command
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.training import TwoLists, estimate_triples, make_triples, read_held_out


def test_private_texts_are_refused(given, tmp_path, make):
    with pytest.raises(BuildError, match="18 of 18 queries and 18 of 18 documents have not been anonymised"):
        make(given, tmp_path / "out", "http://127.0.0.1:1/v1", already_anonymous=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_a_budget_stops_and_a_larger_one_resumes(given, tmp_path, content, sort, make):
    endpoint = FaultEndpoint(answer=sort)
    with serving(sort) as url:
        make(given, tmp_path / "whole", url, journal=tmp_path / "whole.sqlite", shard=5)
    with running(endpoint) as url:
        small = {"budget_tokens": 12_000}
        first = make(given, tmp_path / "out", url, shard=5, llm=small)
        assert not first.complete
        assert "tokens" in first.stopped
        assert not (tmp_path / "out/manifest.json").exists()
        second = make(given, tmp_path / "out", url, shard=5)
    assert second.complete
    assert endpoint.arrived == first.bought + second.bought == 36
    assert 0 < first.bought < 36
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_the_estimate_equals_the_requests_made(given, tmp_path, sort):
    endpoint = FaultEndpoint(answer=sort)
    how = TwoLists(depth=12, documents=5)
    with running(endpoint) as url:
        llm = llm_at(url, price_in=1.0, price_out=2.0)
        cost = estimate_triples(*given, tmp_path / "out", llm, how, shard=4)
        assert not (tmp_path / "answers.sqlite").exists()
        assert (cost.prompts, cost.known, cost.requests) == (54, 0, 54)
        assert cost.cost > 0
        make_triples(*given, tmp_path / "out", llm, how, already_anonymous=True, show_progress=False)
        assert endpoint.arrived == 54
        after = estimate_triples(*given, tmp_path / "out", llm, how, shard=7)
    assert (after.known, after.requests, after.cost) == (54, 0, 0.0)


def test_other_settings_need_another_folder(given, tmp_path, sort, make):
    with serving(sort) as url:
        make(given, tmp_path / "out", url)
        for how, options in ((TwoLists(negatives=3), {}), (None, {"llm": {"temperature": 0.1}})):
            with pytest.raises(BuildError, match="holds a step triples with other settings"):
                make(given, tmp_path / "out", url, how, **options)
        with pytest.raises(BuildError, match="other input"):
            make(given, tmp_path / "out", url, held_out=read_held_out([given[0]]))


@pytest.mark.thorough
def test_faults_do_not_change_the_triples(given, tmp_path, content, sort, make):
    make_with = {"shard": 3}
    with serving(sort) as url:
        make(given, tmp_path / "whole", url, journal=tmp_path / "whole.sqlite", **make_with)
    endpoint = FaultEndpoint(answer=sort, rate=0.05, line=("429", "500", "cut"), answers=())
    with running(endpoint) as url:
        report = make(given, tmp_path / "out", url, **make_with)
    assert report.faults
    assert set(endpoint.sold.values()) == {1}
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_killed_repeatedly_ends_with_the_same_result(given, tmp_path, content, sort, make):
    endpoint = FaultEndpoint(answer=sort, latency=0.05)
    script = textwrap.dedent("""
        import sys
        from medteb_mteb.curation.llm import LLM
        from medteb_mteb.curation.training import TwoLists, make_triples
        *paths, out, url = sys.argv[1:]
        llm = LLM(name="writer", model="writer", base_url=url, temperature=0.7, concurrency=2)
        options = {"already_anonymous": True, "show_progress": False, "shard": 4}
        make_triples(*paths, out, llm, TwoLists(documents=4), **options)
        print("finished")
    """)
    out = tmp_path / "out"
    with running(endpoint) as url:
        command = [sys.executable, "-c", script, *map(str, given), str(out), url]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for after in (10, 50):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
            while endpoint.arrived < after and process.poll() is None:
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert "finished" in done.stdout, done.stderr
        assert set(endpoint.sold.values()) == {1}
        make(given, tmp_path / "whole", url, TwoLists(documents=4), shard=4, journal=tmp_path / "w.sqlite")
    assert content(out) == content(tmp_path / "whole")


def test_the_command_writes_triples_with_the_sorter_of_the_examples(command, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rules.serving(rules.Endpoint()) as url:
        entry = {"name": "sorter", "model": "rule-sorter", "base_url": url}
        (tmp_path / "llm.yaml").write_text(yaml.safe_dump({"llm": entry}))
        args = ["queries.jsonl", "documents.jsonl", "pools.jsonl", "out", "--llm", "llm.yaml", "-q"]
        code, out, _ = command(triples_command, *args, "--dry-run")
        assert (code, "36 requests" in out, "nothing was sent" in out) == (0, True, True)
        with pytest.raises(BuildError, match="--already-anonymous"):
            command(triples_command, *args)
        code, out, _ = command(triples_command, *args, "--already-anonymous", "--negatives", "7")
    assert code == 0
    assert re.search(r"18 queries: 1\d triples, 0 pairs", out), out
    assert "paid over all runs: 36 answers" in out
    # Nothing is asked again: the server is gone.
    code, again, _ = command(triples_command, *args, "--negatives", "7", "--already-anonymous", "--json")
    report = json.loads(again)
    assert (code, report["complete"], report["bought"]) == (0, True, 0)
    assert report["counts"]["triples"] == len(Path("out/triples.jsonl").read_text().splitlines())


def test_the_command_reports_an_incomplete_run(command, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rules.serving(rules.Endpoint()) as url:
        entry = {"name": "s", "model": "rule-sorter", "base_url": url, "budget_tokens": 5000}
        (tmp_path / "llm.yaml").write_text(yaml.safe_dump({"llm": entry}))
        code, out, err = command(
            triples_command, *map(str, given), "out", "--llm", "llm.yaml", "-q", "--already-anonymous"
        )
    assert code == 1
    assert out.endswith("not complete\n")
    assert "stopped" in err
    assert "Run the same command again to resume." in err


def test_a_damaged_journal_is_repaired_by_the_same_command(command, given, tmp_path, monkeypatch, sort):
    monkeypatch.chdir(tmp_path)
    endpoint = FaultEndpoint(answer=sort, idempotent=False)
    with running(endpoint) as url:
        (tmp_path / "llm.yaml").write_text(
            yaml.safe_dump({"llm": {"name": "w", "model": "w", "base_url": url}})
        )
        args = [*map(str, given), "out", "--llm", "llm.yaml", "-q", "--already-anonymous"]
        assert command(triples_command, *args)[0] == 0
        with (tmp_path / "answers.sqlite").open("r+b") as stream:
            stream.seek(100)
            stream.write(b"\xff" * 200)
        shutil.rmtree("out")
        with pytest.raises(BuildError, match="repair"):
            command(triples_command, *args)
        code, out, err = command(triples_command, *args, "--repair")
    assert (code, "18 triples" in out) == (0, True)
    assert "36 answers kept" in err
    assert endpoint.made == 36
