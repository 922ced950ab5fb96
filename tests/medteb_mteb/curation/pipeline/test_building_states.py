"""A resumed build gives the same files wherever it was stopped, and never changes anything silently."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest
import rule_judges

from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline import building as running
from medteb_mteb.curation.pipeline.steps import anonymize

BOTH = {"queries": "queries", "documents": "documents"}
EDITION = {"edition": "clinic", "licence": "mit", "test": 0.4}
CLEAN = [
    {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
    {"step": "anonymize", "name": "documents", "in": "documents.jsonl"},
]
POOL = {"step": "pool", **BOTH, "retrievers": ["bm25"], "size": 6}
JUDGE = {"step": "judge", **BOTH, "pools": "pool"}
LABELS = {"step": "consensus", "name": "labels", "in": "judge"}
ASSEMBLE = {"step": "assemble", "labels": "labels", **BOTH, **EDITION, "small": True}
STS = {"step": "sts", "dictionary": "synonyms.tsv", "queries": "queries", **EDITION}
STEPS = [*CLEAN, POOL, JUDGE, LABELS, ASSEMBLE, STS]


@pytest.fixture
def write(write, dictionary):
    """Writes a pipeline file, by default of all steps of this module."""
    dictionary(7)

    def call(url, *, steps=STEPS, **content):
        llm = {"name": "rewriter", "model": "rule-rewriter", "base_url": url}
        return write(url, steps=steps, llm=llm, **content)

    return call


def files_of(folder):
    """All files of a build, without what differs between runs."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        other = path.name.startswith(".") or ".sqlite" in name or name in ("build.json", "judge/report.json")
        if path.is_file() and not other:
            contents[name] = path.read_bytes()
    return contents


def fates(report):
    return {step.name: step.fate for step in report.steps}


class Killed(BaseException):
    """Replaces SIGKILL."""


@pytest.fixture
def dies(monkeypatch):
    """Runs a build that is killed before its records are written for the n-th time."""
    write = running.State._write

    def call(run, n):
        writes = itertools.count(1)

        def dying(self):
            if next(writes) == n:
                raise Killed
            write(self)

        with monkeypatch.context() as patch:
            patch.setattr(running.State, "_write", dying)
            try:
                return run()
            except Killed:
                return None

    return call


@pytest.mark.slow
def test_a_build_killed_before_any_record_gives_the_same_files(quiet, write, endpoint, tmp_path, dies):
    with rule_judges.serving(endpoint) as url:
        path = write(url)
        quiet(path)
        whole, requests = files_of(tmp_path / "build"), endpoint.requests
        shutil.rmtree(tmp_path / "build")
        (tmp_path / "build").mkdir()
        runs = 0
        for n in itertools.count(1):
            runs += 1
            if dies(lambda: quiet(path), n) is not None:
                break
        assert runs > 3
        assert files_of(tmp_path / "build") == whole
        assert endpoint.requests == 2 * requests
        # And made again, killed again and again, with each old folder moved aside once.
        other = write(url, steps=[*CLEAN, {**POOL, "size": 5}, *STEPS[3:-1], {**STS, "version": "2.0.0"}])
        for n in itertools.count(1):
            if dies(lambda: quiet(other, redo=True), n) is not None:
                break
    again = {path.name for path in (tmp_path / "build").iterdir() if ".old-" in path.name}
    assert again <= {f"{name}.old-1" for name in ("pool", "judge", "labels", "assemble", "sts")}
    assert {"pool.old-1", "labels.old-1", "sts.old-1"} <= again
    for task in ("MedTEBRetrieval", "MedTEBSTS"):
        name = "assemble" if task == "MedTEBRetrieval" else "sts"
        manifest = (tmp_path / "build" / "data" / task / "manifest.json").read_bytes()
        assert manifest == (tmp_path / "build" / name / task / "manifest.json").read_bytes()
        assert manifest != whole[f"{name}/{task}/manifest.json"]


def test_failed_requests_to_an_llm_are_retried(quiet, write, endpoint, tmp_path, monkeypatch):
    rewriter = rule_judges.ANSWERS["rule-rewriter"]
    refused = ["感冒怎么治疗", "痛风会传染吗"]

    def answer(messages):
        if any(text in message["content"] for text in refused for message in messages):
            return "我不知道"
        return rewriter(messages)

    with rule_judges.serving(endpoint) as url:
        path = write(url, steps=[CLEAN[0], STS])
        with monkeypatch.context() as patch:
            patch.setitem(rule_judges.ANSWERS, "rule-rewriter", answer)
            failed = quiet(path).steps[1].result["dropped"]
        assert sum(number for reason, number in failed.items() if reason.startswith("failed-")) > 0
        again = quiet(path, retry_failed=True)
    assert fates(again) == {"queries": "kept", "sts": "made"}
    assert not any(reason.startswith("failed-") for reason in again.steps[1].result["dropped"])
    data = files_of(tmp_path / "build" / "data")
    folder = files_of(tmp_path / "build" / "sts")
    assert data == {name: content for name, content in folder.items() if not name.startswith("sts/")}


@pytest.mark.thorough
def test_a_kill_while_an_edition_is_removed_is_repaired(quiet, write, endpoint, tmp_path, monkeypatch):
    with rule_judges.serving(endpoint) as url:
        path = write(url, steps=[CLEAN[0], STS])
        quiet(path)
        whole = files_of(tmp_path / "build")

        def rmtree(folder, **options):
            next(Path(folder).rglob("*.jsonl")).unlink()
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(running.shutil, "rmtree", rmtree)
            with pytest.raises(Killed):
                quiet(path, retry_failed=True)
        assert files_of(tmp_path / "build") != whole
        quiet(path)
    assert files_of(tmp_path / "build") == whole


@pytest.mark.slow
def test_a_kill_between_retried_answers_and_their_manifest_is_repaired(
    quiet, write, endpoint, tmp_path, monkeypatch
):
    from medteb_mteb.curation.judge import judging

    write_text = judging.write_text

    def dies(path, content):
        if path.name == "manifest.json":
            raise Killed
        write_text(path, content)

    with rule_judges.serving(endpoint) as url:
        path = write(url, steps=STEPS[:5])
        with monkeypatch.context() as patch:
            patch.setitem(rule_judges.ANSWERS, "rule-words", lambda messages: "我不知道")
            quiet(path)
        with monkeypatch.context() as patch:
            patch.setattr(judging, "write_text", dies)
            with pytest.raises(Killed):
                quiet(path, retry_failed=True)
        # The labels of the answers before were put aside, so any call makes them from the new answers.
        assert not list((tmp_path / "build").glob("labels/*.jsonl"))
        after = fates(quiet(path))
        assert (after["pool"], after["judge"], after["labels"]) == ("kept", "made", "made")
        assert set(fates(quiet(path)).values()) == {"kept"}
    manifest = json.loads((tmp_path / "build/judge/manifest.json").read_text())
    assert not any(one["failed"] for one in manifest["judges"].values())


@pytest.mark.thorough
def test_retrying_keeps_files_that_were_edited(quiet, write, endpoint):
    with rule_judges.serving(endpoint) as url:
        quiet(write(url, steps=STEPS[:4]))
        smaller = write(url, steps=[*CLEAN, {**POOL, "size": 3}, JUDGE])
        with pytest.raises(BuildError, match="Step 'pool' was made with other settings"):
            quiet(smaller, retry_failed=True)


@pytest.mark.thorough
def test_another_file_of_the_same_step_is_another_input(quiet, write, endpoint):
    def after(task):
        return {"step": "dedup", "name": "last", "in": f"assemble/{task}/corpus.jsonl"}

    with rule_judges.serving(endpoint) as url:
        quiet(write(url, steps=[*STEPS[:6], after("MedTEBRetrieval")]))
        with pytest.raises(BuildError, match="Step 'last' was made with other settings or inputs"):
            quiet(write(url, steps=[*STEPS[:6], after("MedTEBReranking")]))


@pytest.mark.thorough
def test_a_failed_step_may_be_changed(quiet, write, endpoint, tmp_path):
    rows = [json.loads(line) for line in (tmp_path / "queries.jsonl").read_text("utf-8").splitlines()]
    (tmp_path / "training.jsonl").write_text(
        "".join(json.dumps({"query": row["text"], "positive": "a", "negative": "b"}) + "\n" for row in rows)
    )
    leaking = {**ASSEMBLE, "against": ["training.jsonl"], "leaks": "fail"}
    with rule_judges.serving(endpoint) as url:
        with pytest.raises(BuildError, match=r"Step 'assemble': .*near-duplicates of training queries"):
            quiet(write(url, steps=[*STEPS[:5], leaking]))
        path = write(url, steps=STEPS[:6])
        assert building.forecast(path).steps[-1].fate == "to do"
        assert fates(quiet(path))["assemble"] == "made"


def test_only_text_files_of_a_folder_are_the_input_of_a_build(quiet, write, tmp_path):
    """Files that a build writes into its input folder, and files without texts, are not its input."""
    (tmp_path / "synonyms.tsv").unlink()
    (tmp_path / "queries.jsonl").unlink()
    path = write("http://127.0.0.1:9/v1", steps=[{"step": "dedup", "in": "."}])
    assert fates(quiet(path)) == {"dedup": "made"}
    (tmp_path / "README.md").write_text("notes")
    assert fates(quiet(path)) == {"dedup": "kept"}
    (tmp_path / "manifest.json").write_text("{}")
    assert fates(quiet(path)) == {"dedup": "kept"}
    with (tmp_path / "documents.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"_id": "new", "text": "新的一段话。"}) + "\n")
    with pytest.raises(BuildError, match="was made with other settings or inputs"):
        quiet(path)


@pytest.mark.thorough
def test_the_common_folder_holds_what_the_file_says(quiet, write, endpoint, tmp_path):
    data = tmp_path / "build" / "data"
    with rule_judges.serving(endpoint) as url:
        path = write(url)
        quiet(path)
        first = files_of(data)
        other = {**ASSEMBLE, "name": "other", "version": "2.0.0", "test": 0.6}
        printed = []
        building.build(
            write(url, steps=[*STEPS[:5], other]), show_progress=False, say=lambda line: printed.append(line)
        )
        assert any(line.startswith("sts is no longer a step") for line in printed)
        assert files_of(data) == files_of(tmp_path / "build" / "other")
        # Back to the first: nothing is made, and everything is there again.
        assert set(fates(quiet(write(url))).values()) == {"kept"}
    assert files_of(data) == first


def test_an_error_of_the_system_names_its_step(quiet, write, monkeypatch, medteb):
    def full(report):
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(anonymize, "counts_of", full)
    code, _, err = medteb("build", write("http://127.0.0.1:9/v1", steps=CLEAN), "-q")
    assert code == 2
    assert err.startswith("medteb: error: Step 'queries': somewhere: No space left on device. Fix this")


def test_an_error_of_a_model_names_its_step(quiet, write, tmp_path):
    (tmp_path / "empty").mkdir()
    steps = [*CLEAN, {**POOL, "retrievers": ["empty"]}]
    with pytest.raises(BuildError, match="Step 'pool': "):
        quiet(write("http://127.0.0.1:9/v1", steps=steps))


@pytest.mark.parametrize(
    "content",
    ["", '{"schema', "[]", "{}", '{"schema_version": 1, "steps": {"queries": {"state": 1}}}', "\udcff"],
)
def test_damaged_records_are_reported(medteb, write, tmp_path, content):
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "build.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    path = write("http://127.0.0.1:9/v1", steps=CLEAN)
    for args in ((), ("--dry-run",)):
        code, _, err = medteb("build", path, *args)
        assert code == 2
        assert "build.json is damaged" in err


@pytest.mark.thorough
def test_a_full_disk_while_publishing_is_reported(quiet, write, endpoint, monkeypatch, tmp_path):
    from medteb_mteb.curation.pipeline import publish

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with rule_judges.serving(endpoint) as url:
        path = write(url, steps=STEPS[:6])
        with monkeypatch.context() as patch:
            patch.setattr(publish.os, "link", full)
            patch.setattr(publish.shutil, "copy2", full)
            with pytest.raises(BuildError, match=r"cannot be written .*No space left"):
                quiet(path)
        assert fates(quiet(path))["assemble"] == "made"
    assert (tmp_path / "build/data/MedTEBRetrieval/corpus.jsonl").is_file()
