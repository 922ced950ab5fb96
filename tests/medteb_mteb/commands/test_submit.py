"""`medteb submit`: what is checked, what stays here, and what mteb commits."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import mteb
import pytest
from huggingface_hub import ModelCard
from mteb.cache import ResultCache
from mteb.results import TaskResult

from medteb_mteb.editions import find_edition
from medteb_mteb.models.local import local_meta
from medteb_mteb.validate import results as points

MODEL, TASK, SEVERAL = "BAAI/bge-small-zh-v1.5", "MedicalQARetrieval", "STS22.v2"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def known():
    """A model that mteb has."""
    return mteb.get_model_meta(MODEL, fetch_from_hf=False)


def unknown(**fields):
    """A public model that mteb does not have, described in full."""
    stated = {"n_parameters": 1000, "memory_usage_mb": 1, "license": "mit", "framework": ["PyTorch"]}
    values = {"name": "org/model", "revision": COMMIT, "training_datasets": set(), "loader": None}
    return local_meta(**{**values, **stated, **fields})


def save(folder: Path, meta, task: str = TASK, *, revision: str | None = None, score: float = 0.5) -> Path:
    """Saves a result as an evaluation does; returns its file."""
    of = mteb.get_task(task)
    entry = {of.metadata.main_score: score, "main_score": score}
    scores = {split: {subset: dict(entry) for subset in of.hf_subsets} for split in of.eval_splits}
    result = TaskResult.from_task_results(of, scores, evaluation_time=1.0)
    result.dataset_revision = revision or of.metadata.revision
    cache = ResultCache(folder)
    cache.save_to_cache(result, meta, encode_kwargs={"batch_size": 8})
    return cache.get_task_result_path(task, meta)


def edit(file: Path, **changes) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.fixture
def go(medteb, tmp_path):
    """Submits `tmp_path/results`: (exit code, verdict by point, files of OUT)."""

    def call(*arguments):
        out = tmp_path / "out"
        code, said, err = medteb("submit", tmp_path / "results", out, "--json", *arguments)
        assert said, err
        files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
        return code, {one["title"]: one["verdict"] for one in json.loads(said)["findings"]}, files

    return call


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A bare repository that git takes for the repository of results on GitHub."""
    bare, first = tmp_path / "bare.git", tmp_path / "first"
    config = tmp_path / "gitconfig"
    config.write_text(
        "[user]\n\tname = someone\n\temail = someone@example.org\n"
        f'[url "file://{bare}"]\n\tinsteadOf = https://github.com/embeddings-benchmark/results\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    (first / "results").mkdir(parents=True)
    (first / "results" / "README.md").write_text("results")
    for arguments in (("init", "-b", "main"), ("add", "."), ("commit", "-m", "start")):
        subprocess.run(["git", *arguments], cwd=first, check=True, capture_output=True)
    subprocess.run(["git", "clone", "--bare", str(first), str(bare)], check=True, capture_output=True)
    return bare


def test_mteb_commits_what_was_written_and_nothing_private(
    medteb, tmp_path, make_folder, repository, monkeypatch
):
    from medteb_mteb import register_tasks
    from medteb_mteb.folders.tasks import task_from_folder

    clinic = task_from_folder(make_folder("STS", "st-anne-cardiology"))
    register_tasks([clinic])
    results, out = tmp_path / "results", tmp_path / "out"
    save(results, known())
    save(results, unknown(), "MedTEBSTS")  # on the packaged edition
    save(results, known(), "st-anne-cardiology")
    save(results, known(), "MedTEBRetrieval", revision="f" * 64)  # on an edition of one's own
    save(results, local_meta(name="local/st-anne-model", revision=COMMIT, loader=None))
    save(results, local_meta(name="run/st-anne-run", revision=COMMIT, loader=None))
    for kind in ("trec", "items"):
        place = results / kind / "BAAI__bge-small-zh-v1.5"
        place.mkdir(parents=True)
        (place / "secret.json").write_text("st-anne")
    code, said, _ = medteb("submit", results, out)
    assert code == 0
    assert all(name in said for name in ("st-anne-cardiology", "local/st-anne-model", "run/st-anne-run"))
    written = {path.relative_to(out).as_posix(): path for path in out.rglob("*") if path.is_file()}
    assert not any("st-anne" in name or "st-anne" in path.read_text() for name, path in written.items())

    command = shlex.split(said.rstrip().splitlines()[-1])
    assert command[:2] == ["mteb", "submit-results"]
    monkeypatch.setattr(sys, "argv", command)
    from mteb.cli.build_cli import main

    main()

    def git(*arguments):
        cloned = out / "remote"
        done = subprocess.run(["git", *arguments], cwd=cloned, check=True, capture_output=True, text=True)
        return done.stdout

    committed = git("show", "--name-only", "--format=", "HEAD").split()
    assert set(committed) == {name for name in written if name.startswith("results/")}
    for name in committed:
        assert git("show", f"HEAD:{name}") == written[name].read_text()
    assert "st-anne" not in git("show", "HEAD")


def test_a_result_of_mtebs_own_model_and_task_has_no_problem(go, tmp_path):
    file = save(tmp_path / "results", known())
    code, verdicts, files = go()
    assert (code, set(verdicts.values())) == (0, {"ok"})
    folder = file.parent.relative_to(tmp_path / "results").as_posix()
    names = {f"{TASK}.json", points.META, points.SETTINGS}
    card = "model-card/BAAI__bge-small-zh-v1.5.md"
    assert files == {*(f"{folder}/{name}" for name in names), card, "pull-request.md"}
    (entry,) = ModelCard.load(tmp_path / "out" / card).data.eval_results
    assert (entry.metric_value, entry.dataset_revision) == (0.5, mteb.get_task(TASK).metadata.revision)


@pytest.mark.parametrize(
    ("fields", "point", "verdict"),
    [
        ({}, points.MTEB_MODEL, "warning"),
        ({"revision": "no_revision_available"}, points.MODEL, "fail"),
        ({"revision": "main"}, points.MODEL, "fail"),
        ({"name": "no_model_name/available"}, points.MODEL, "fail"),
        ({"n_parameters": None}, points.STATED, "fail"),
        ({"memory_usage_mb": None}, points.STATED, "fail"),
        ({"license": None}, points.STATED, "fail"),
        ({"framework": []}, points.STATED, "fail"),
        ({"training_datasets": None}, points.STATED, "fail"),
        ({"n_parameters": None, "license": None, "open_weights": False}, points.STATED, "ok"),
        ({"training_datasets": {TASK}}, points.TRAINED, "warning"),
        ({"adapted_from": MODEL, "training_datasets": set()}, points.TRAINED, "ok"),
        ({"loader_kwargs": {"model": "/home/someone/model"}}, points.FILES, "fail"),
    ],
)
def test_models_are_described_as_reviewers_ask(go, tmp_path, fields, point, verdict):
    save(tmp_path / "results", unknown(**fields))
    code, verdicts, files = go()
    assert verdicts[point] == verdict
    assert (code == 1, not files) == (verdict == "fail", verdict == "fail")


def test_training_data_of_the_model_that_a_model_was_made_from_count(go, tmp_path):
    save(tmp_path / "results", unknown(adapted_from=MODEL), "T2Retrieval")
    _, verdicts, _ = go()
    assert verdicts[points.TRAINED] == "warning"
    text = (tmp_path / "out" / "pull-request.md").read_text()
    assert "T2Retrieval" in text.split("trained on")[1].split("Models Submitted")[0]


def test_metadata_that_differ_from_mtebs_are_sent_back(go, tmp_path):
    file = save(tmp_path / "results", known())
    edit(file.parent / points.META, license="apache-2.0")
    code, verdicts, files = go()
    assert (code, verdicts[points.MTEB_MODEL], files) == (1, "fail", set())


def edited(change):
    """A change of a saved result and its rows of scores."""

    def apply(file):
        content = json.loads(file.read_text())
        change(content, content["scores"]["test"])
        file.write_text(json.dumps(content))

    return apply


without_a_subset = edited(lambda content, rows: rows.pop())


def with_version(value):
    return edited(lambda content, rows: [one.update(mteb_version=value) for one in (content, *rows)])


@pytest.mark.parametrize(
    ("change", "point", "verdict"),
    [
        (lambda file: file.write_text("{"), points.FILES, "fail"),
        (lambda file: edit(file, task_name="STS17"), points.FILES, "fail"),
        (lambda file: (file.parent / points.SETTINGS).unlink(), points.FILES, "fail"),
        (lambda file: (file.parent / points.META).unlink(), points.FILES, "fail"),
        (edited(lambda _, rows: rows[0].update({"first query": "感冒发烧吃什么药"})), points.FILES, "fail"),
        (without_a_subset, points.COMPLETE, "fail"),
        (edited(lambda _, rows: rows[0].update(main_score=float("nan"))), points.COMPLETE, "fail"),
        (lambda file: edit(file, dataset_revision=COMMIT), points.DATA, "fail"),
        (with_version("2.13.0"), points.FILES, "fail"),
        (with_version("2.14.0"), points.VERSIONS, "warning"),
    ],
)
def test_results_are_complete_as_reviewers_ask(go, tmp_path, change, point, verdict):
    change(save(tmp_path / "results", known(), SEVERAL))
    code, verdicts, files = go()
    assert verdicts[point] == verdict
    assert (code == 1, not files) == (verdict == "fail", verdict == "fail")


def test_only_what_passes_of_a_model_is_written(go, tmp_path):
    without_a_subset(save(tmp_path / "results", known(), SEVERAL))
    file = save(tmp_path / "results", known())
    code, _, files = go()
    assert code == 1
    folder = file.parent.relative_to(tmp_path / "results").as_posix()
    names = {f"{folder}/{name}" for name in (f"{TASK}.json", points.META, points.SETTINGS)}
    assert {name for name in files if name.startswith(folder)} == names
    assert SEVERAL not in (tmp_path / "out" / folder / points.SETTINGS).read_text()


def test_a_task_at_two_revisions_of_a_model_is_sent_back(go, tmp_path):
    for revision in (COMMIT, COMMIT[::-1]):
        save(tmp_path / "results", unknown(revision=revision))
    code, verdicts, files = go()
    assert (code, verdicts[points.FILES], files) == (1, "fail", set())


def test_models_and_tasks_can_be_chosen(go, tmp_path):
    save(tmp_path / "results", unknown(license=None))
    save(tmp_path / "results", known())
    save(tmp_path / "results", known(), "STS22.v2", revision=COMMIT)
    code, verdicts, _ = go("-m", MODEL, "-t", TASK)
    assert (code, set(verdicts.values())) == (0, {"ok"})


def test_tasks_of_this_package_are_named_as_unknown_to_mteb(go, tmp_path):
    save(tmp_path / "results", known(), "MedTEBSTS", revision=find_edition("MedTEBSTS").digest)
    save(tmp_path / "results", known(), "BIOSSES")  # ours replaces mteb's task of this name
    code, verdicts, files = go()
    assert (code, verdicts[points.MTEB_TASK]) == (0, "warning")
    assert any(name.endswith("/BIOSSES.json") for name in files)
    assert "BIOSSES: mteb has no" not in (tmp_path / "out" / "pull-request.md").read_text()


def test_nothing_is_written_over_and_a_folder_without_results_is_refused(medteb, tmp_path):
    (tmp_path / "results").mkdir()
    assert medteb("submit", tmp_path / "results", tmp_path / "out")[0] == 2
    assert medteb("submit", tmp_path / "nothing", tmp_path / "out")[0] == 2
    save(tmp_path / "results", known())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    assert medteb("submit", tmp_path / "results", tmp_path / "out")[0] == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
