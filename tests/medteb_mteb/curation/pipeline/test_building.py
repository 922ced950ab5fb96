"""A whole build from one file: equal to its commands, resumable anywhere, never paying twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rule_judges
import yaml
from tests.docs.walks import check, entered
from tests.medteb_mteb.curation.pipeline.build_steps import STEPS, changed

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline import building as running


def files(folder):
    """All files of a build except times, locks and journals."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.name.startswith(".") and ".sqlite" not in name:
            contents[name] = path.read_bytes()
    contents.pop("judge/report.json", None)  # what this run bought
    build = json.loads(contents.pop("build.json"))
    for record in build["steps"].values():
        del record["seconds"]
        record["result"].pop("judges", None)
    return {**contents, "build.json": build}


@pytest.mark.thorough
def test_a_build_gives_the_same_files_as_its_commands(quiet, medteb, write, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = quiet(write(server))
    assert report.complete
    assert [step.fate for step in report.steps] == ["made"] * len(STEPS)

    def run(*args):
        code, _, err = medteb(*args)
        assert code == 0, err

    run("anonymize", "queries.jsonl", "by-hand/queries", "-q")
    run("anonymize", "documents.jsonl", "by-hand/anonymous", "-q")
    run("dedup", "by-hand/anonymous", "by-hand/documents", "--threshold", "0.9", "-q")
    both = ("by-hand/queries", "by-hand/documents")
    run("pool", *both, "by-hand/pool", "-r", "bm25", "--size", "12", "-q")
    judges = tmp_path / "judges.yaml"
    content = yaml.safe_load(Path("pipeline.yaml").read_text(encoding="utf-8"))
    judges.write_text(yaml.safe_dump({"judges": content["judges"]}))
    run("judge", *both, "by-hand/pool/pools.jsonl", "by-hand/judge", "--judges", judges, "-q")
    run("consensus", "by-hand/judge", "by-hand/labels")
    run(
        "assemble", "by-hand/labels", *both, "by-hand/assemble", "--name", "clinic", "--license", "mit",
        "--test", "0.4", "--small",
    )  # fmt: skip
    for name in (
        "queries/records-00000.jsonl",
        "documents/records-00000.jsonl",
        "pool/pools.jsonl",
        "judge/judgements.jsonl",
        "labels/labels.jsonl",
        "assemble/MedTEBRetrieval/manifest.json",
        "assemble/MedTEBReranking/manifest.json",
        "assemble/train/triples.jsonl",
    ):
        assert (tmp_path / "build" / name).read_bytes() == (tmp_path / "by-hand" / name).read_bytes(), name


@pytest.mark.slow
def test_a_build_takes_the_walk_of_the_architecture_page(write, server, tmp_path):
    write(server)
    command = ("medteb_mteb.cli:main", "build", "pipeline.yaml", "-q")
    check("medteb build pipeline.yaml", entered("medteb_mteb", *command, folder=tmp_path))


@pytest.mark.thorough
def test_the_editions_of_a_build_are_named(medteb, write, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = medteb("build", write(server), "-q")
    assert code == 0, err
    assert f"MEDTEB_DATA={tmp_path / 'build' / 'data'} mteb run -t MedTEBReranking MedTEBRetrieval" in out
    assert (tmp_path / "build/data/train/triples.jsonl").is_file()


@pytest.mark.thorough
def test_building_step_by_step_equals_a_whole_build(quiet, write, endpoint, tmp_path):
    with rule_judges.serving(endpoint) as url:
        assert quiet(write(url, out="whole", name="whole.yaml")).complete
        requests = endpoint.requests
        path = write(url, out="parts", journal="whole/judgements.sqlite", name="parts.yaml")
        for step in STEPS:
            quiet(path, until=step.get("name", step["step"]))
    assert endpoint.requests == requests > 0
    whole, parts = files(tmp_path / "whole"), files(tmp_path / "parts")
    for name in ("build.json", "review/sheet.csv", "judge/manifest.json"):
        assert name in whole
    assert set(whole) == set(parts)
    for content in (whole, parts):  # the sheet's path is in its result
        content["build.json"]["steps"]["review"]["result"].pop("sheet")
    assert {n for n in whole if whole[n] != parts[n]} == set()
    # The server is gone.
    again = quiet(path, resume=True)
    assert {step.fate for step in again.steps} == {"kept"}


KILLED = """
import sys
from medteb_mteb.curation import pipeline
pipeline.build(sys.argv[1], show_progress=False)
"""


@pytest.mark.slow
def test_a_build_killed_while_judging_ends_with_the_same_bytes(quiet, write, endpoint, tmp_path):
    with rule_judges.serving(endpoint) as url:
        assert quiet(write(url, out="whole", name="whole.yaml")).complete
        once = endpoint.requests
        path = write(url, out="killed", name="killed.yaml", judge={"requests_per_minute": 1200})
        for part in (once // 4, once // 2):  # what it asks before it is killed
            process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.DEVNULL)
            try:
                deadline = time.monotonic() + 60
                while endpoint.requests < once + part:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            finally:
                process.kill()
                process.wait()
        requests = endpoint.requests
        assert requests < 2 * once
        # How fast may be asked makes no difference.
        assert quiet(write(url, out="killed", name="killed.yaml")).complete
    # Nothing but what was under way is asked for twice.
    assert 2 * once <= endpoint.requests <= 2 * once + 2 * 3 * 16
    assert endpoint.requests > requests
    whole, killed = files(tmp_path / "whole"), files(tmp_path / "killed")
    for content in (whole, killed):
        content["build.json"]["steps"]["review"]["result"].pop("sheet")
    assert {n for n in whole if whole[n] != killed.get(n)} == set()


@pytest.mark.thorough
def test_a_build_stopped_at_its_budget_resumes_with_a_larger_one(quiet, write, server, tmp_path):
    path = write(server, judge={"budget_tokens": 4000})
    report = quiet(path)
    assert not report.complete
    assert report.steps[-1].fate == "stopped"
    assert "tokens are spent" in report.steps[-1].stopped
    assert report.left == ("judge", "labels", "review", "assemble")
    assert quiet(write(server)).complete


@pytest.mark.thorough
def test_a_change_is_refused_and_rebuilt_on_request(quiet, write, endpoint, tmp_path):
    with rule_judges.serving(endpoint) as url:
        quiet(write(url))
        requests = endpoint.requests
        smaller = write(url, steps=changed(STEPS, "pool", size=6))
        with pytest.raises(
            BuildError, match=r"Step 'pool' was made with other .*judge, labels, review, assemble"
        ):
            quiet(smaller)
        before = (tmp_path / "build/review/sheet.csv").read_bytes()
        printed = []
        report = building.build(smaller, redo=True, show_progress=False, say=printed.append)
    assert [step.fate for step in report.steps] == ["kept"] * 3 + ["made"] * 5
    # All judgements are in the journal, and sheets that clinicians may have filled in are kept.
    assert endpoint.requests == requests
    assert (tmp_path / "build/review.old-1/sheet.csv").read_bytes() == before
    assert any("review.old-1" in line for line in printed)


def test_changed_texts_are_noticed(quiet, write, server, tmp_path):
    quiet(write(server), until="documents")
    with (tmp_path / "documents.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"_id": "new", "text": "新的一段关于发热的话。"}\n')
    with pytest.raises(BuildError, match="Step 'anonymous' was made with other settings or inputs"):
        quiet(write(server))


def test_a_run_file_is_a_retriever_and_its_change_is_noticed(quiet, write, texts, tmp_path):
    (tmp_path / "runs").mkdir()
    run = tmp_path / "runs" / "lucene.trec"
    run.write_text("q00 Q0 d11 1 0.9 x\n")
    pool = {"step": "pool", "queries": "queries.jsonl", "documents": "documents.jsonl", "size": 12}
    steps = [{**pool, "retrievers": ["bm25", "runs/lucene.trec"]}]
    quiet(write(steps=steps))
    rows = [json.loads(line) for line in (tmp_path / "build/pool/pools.jsonl").read_text().splitlines()]
    (row,) = [row for row in rows if row["query-id"] == "q00"]
    assert row["ranks"]["lucene"][row["corpus-ids"].index("d11")] == 1
    assert {step.fate for step in quiet(write(steps=steps)).steps} == {"kept"}
    run.write_text("q00 Q0 d12 1 0.9 x\n")
    with pytest.raises(BuildError, match="Step 'pool' was made with other settings or inputs"):
        quiet(write(steps=steps))


@pytest.mark.thorough
def test_irrelevant_settings_may_change(quiet, write, server):
    quiet(write(server))
    report = quiet(write(server, judge={"concurrency": 2, "timeout": 30.0}))
    assert {step.fate for step in report.steps} == {"kept"}


@pytest.mark.thorough
def test_a_forecast_is_a_bound_and_exact_once_pools_exist(quiet, write, endpoint, tmp_path):
    priced = {"price_in": 1.0, "price_out": 4.0}
    with rule_judges.serving(endpoint) as url:
        path = write(url, judge=priced)
        first = building.forecast(path)
        assert not (tmp_path / "build").exists()
        assert endpoint.requests == 0
        quiet(path, until="pool")
        exact = building.forecast(path)
        quiet(path)
    bound, known = first.to_json(), exact.to_json()
    assert not bound["exact"]
    assert known["exact"]
    # The number of checks of positives depends on the answers.
    checks = endpoint.requests - known["requests"]
    assert 0 < checks <= known["checks"]
    for key in ("requests", "tokens_in", "tokens_out", "cost"):
        assert known[key] <= bound[key] < 1.5 * known[key], key
    fates = [step.fate for step in exact.steps]
    assert fates == ["finished"] * 4 + ["to do"] * 4
    after = building.forecast(path).to_json()
    assert (after["requests"], after["cost"]) == (0, 0)
    assert {step["fate"] for step in after["steps"]} == {"finished"}
    assert after["steps"][2]["writes"]["items"] == 48


@pytest.mark.thorough
def test_a_forecast_says_what_has_changed(quiet, medteb, write, server):
    quiet(write(server))
    code, out, _ = medteb("build", write(server, steps=changed(STEPS, "pool", size=6)), "--dry-run")
    assert code == 0
    assert "pool       changed" in out
    assert "--redo runs changed steps again" in out
    assert "in all about" in out


@pytest.mark.thorough
def test_failures_are_retried_and_later_steps_rebuilt(quiet, write, endpoint, monkeypatch, tmp_path):
    answer = rule_judges.ANSWERS["rule-words"]

    def unsure(messages):
        return "我不知道" if "失眠" in rule_judges.read_prompt(messages).query else answer(messages)

    with rule_judges.serving(endpoint) as url:
        path = write(url, judge={"max_failed": 1.0, "unreadable": None})
        monkeypatch.setitem(rule_judges.ANSWERS, "rule-words", unsure)
        first = quiet(path)
        assert first.complete
        failed = next(one for one in first.steps if one.name == "judge").result["judges"]
        assert sum(sum(one["failed"].values()) for one in failed) > 0
        monkeypatch.setitem(rule_judges.ANSWERS, "rule-words", answer)
        assert {step.fate for step in quiet(path).steps} == {"kept"}
        again = quiet(path, retry_failed=True)
    assert [step.fate for step in again.steps][4:] == ["made"] * 4
    assert not any(one["failed"] for one in again.steps[4].result["judges"])
    assert (tmp_path / "build/labels.old-1").is_dir()


@pytest.mark.thorough
def test_a_build_killed_between_a_step_and_its_record_resumes(quiet, write, server, tmp_path):
    path = write(server)
    quiet(path)
    whole = files(tmp_path / "build")
    for name in ("assemble", "labels", "review"):
        state = running.State(tmp_path / "build")
        record = state.records[name]
        state.put(name, running.StepRecord(record.step, record.fingerprint))
    assert [step.fate for step in quiet(path).steps][5:] == ["made"] * 3
    assert files(tmp_path / "build") == whole


@pytest.mark.thorough
def test_the_common_folder_follows_its_steps(quiet, write, server, tmp_path):
    path = write(server)
    quiet(path)
    data = tmp_path / "build" / "data"
    contents = {file.relative_to(data): file.read_bytes() for file in data.rglob("*") if file.is_file()}
    assert len(contents) > 5
    shutil.rmtree(data)
    quiet(path)
    assert {
        file.relative_to(data): file.read_bytes() for file in data.rglob("*") if file.is_file()
    } == contents
    (data / "MedTEBRetrieval" / "stale.txt").write_text("x")
    quiet(write(server, steps=changed(STEPS, "assemble", version="2.0.0")), redo=True)
    assert not (data / "MedTEBRetrieval" / "stale.txt").exists()
    assert "2.0.0" in (data / "MedTEBRetrieval" / "manifest.json").read_text()


def test_two_builds_do_not_share_a_folder(quiet, write, server, tmp_path):
    path = write(server)
    quiet(path, until="queries")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path\n"
            "from medteb_mteb.curation.files.folder import alone\n"
            "with alone(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)",
            str(tmp_path / "build"),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BuildError, match="Another process is writing"):
            quiet(path)
    finally:
        holder.kill()
        holder.wait()
    assert quiet(path, until="queries").complete
