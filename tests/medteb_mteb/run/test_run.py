"""`medteb run`: scores with intervals on tasks, benchmarks and folders, saved and reused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from mteb.abstasks import AbsTaskPairClassification
from tests.conftest import write_judged

from medteb_mteb.folders.layout import inspect_folder


@pytest.fixture
def go(medteb, tmp_path):
    """Runs models: `go(*arguments) -> (exit code, content of --json, stderr)`."""

    def call(*args):
        code, out, err = medteb("run", *args, "--output-folder", tmp_path / "out", "--json")
        return code, json.loads(out) if out else None, err

    return call


def result_files(output):
    return {path.stem: path for path in output.glob("results/*/*/*.json") if path.stem != "model_meta"}


def test_every_type_of_folder_runs_and_is_saved_in_mtebs_format(go, make_folder, encoder_folder, tmp_path):
    kinds = ["Retrieval", "Reranking", "STS", "PairClassification", "Classification", "Clustering"]
    folders = [make_folder(kind) for kind in kinds]
    code, report, err = go(*(word for folder in folders for word in ("--data", folder)), "-m", encoder_folder)
    assert code == 0, err
    (row,) = report["rows"]
    assert (row["model"], report["errors"]) == ("local/tiny-encoder", [])
    for folder in folders:
        cell = row["scores"][folder.name]
        saved = json.loads(result_files(tmp_path / "out")[folder.name].read_text())
        assert saved["dataset_revision"] == cell["dataset_revision"] == inspect_folder(folder).revision()
        assert saved["scores"]["test"][0]["main_score"] == cell["score"]
        if folder.name == "tiny-clustering":
            assert (cell["low"], "no score per text" in cell["note"]) == (None, True)
        else:
            assert cell["low"] <= cell["score"] <= cell["high"]


def test_results_are_reused_until_data_or_model_change(go, make_folder, encoder_folder, tmp_path):
    folder, model = make_folder("STS"), tmp_path / "my-model"
    shutil.copytree(encoder_folder, model)

    def run(*more):
        code, report, err = go("--data", folder, "-m", model, *more)
        assert code == 0, err
        return report["rows"][0], "saved before" in err

    first, saved = run()
    assert not saved
    assert run() == (first, True)
    assert run("--overwrite") == (first, False)
    # A damaged result, or one that is not a number, is evaluated again.
    path = result_files(tmp_path / "out")[folder.name]
    whole = path.read_text()
    for damaged in (
        "",
        whole[:300],
        whole.replace(f'"main_score": {first["scores"]["tiny-sts"]["score"]}', '"main_score": NaN'),
    ):
        path.write_text(damaged)
        assert run() == (first, False)
    # So is one with the main score of another task on the same data.
    other = json.loads(whole)
    (scores,) = other["scores"]["test"]
    scores["main_score"] = scores["manhattan_pearson"]
    path.write_text(json.dumps(other))
    assert run() == (first, False)
    rows = folder / "test.jsonl"
    rows.write_text("\n".join(rows.read_text(encoding="utf-8").splitlines()[:5]), encoding="utf-8")
    changed, saved = run()
    assert (saved, changed["scores"]["tiny-sts"]["items"]) == (False, 5)
    config = model / "config_sentence_transformers.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "similarity_fn_name": "dot"}))
    other, saved = run()
    assert not saved
    assert other["model_revision"] != first["model_revision"]


def test_a_run_that_is_killed_before_the_result_is_saved_is_repeated(
    go, make_folder, encoder_folder, monkeypatch
):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    args = ("--data", make_folder("STS"), "--data", make_folder("Retrieval"), "-m", encoder_folder)
    with monkeypatch.context() as patch:
        patch.setattr("mteb.cache.ResultCache.save_to_cache", killed)
        assert go(*args)[0] == 130
    code, report, err = go(*args)
    assert (code, "saved before" in err) == (0, False)
    assert all(cell["low"] is not None for cell in report["rows"][0]["scores"].values())


def test_a_failing_task_or_model_loses_nothing_else(go, make_folder, encoder_folder, tmp_path, monkeypatch):
    def fail(self, *args, **kwargs):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(AbsTaskPairClassification, "_evaluate_subset", fail)
    broken = tmp_path / "broken"
    shutil.copytree(encoder_folder, broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    folders = [make_folder(kind) for kind in ("PairClassification", "STS")]
    data = [word for folder in folders for word in ("--data", folder)]
    code, report, _ = go(*data, "-m", broken, "-m", encoder_folder)
    assert code == 1
    assert report["errors"][1] == "local/tiny-encoder on tiny-pairclassification: out of memory"
    assert report["errors"][0].startswith("local/broken: the model cannot be loaded")
    assert [set(row["scores"]) for row in report["rows"]] == [set(), {"tiny-sts"}]
    assert set(result_files(tmp_path / "out")) == {"tiny-sts"}
    monkeypatch.setattr("mteb.models.ModelMeta.load_model", fail)
    _, report, _ = go(*data, "-m", encoder_folder)
    assert set(report["rows"][0]["scores"]) == {"tiny-sts"}  # saved before


def test_every_two_models_are_compared_and_unjudged_documents_are_shown(
    medteb, make_folder, encoder_folder, tmp_path
):
    models = ["bm25-char-bigram", "bm25-jieba", encoder_folder]
    folder = make_folder("Retrieval")
    write_judged(folder, [("q1", "d2", 0)], "labels.tsv")
    args = ["run", "--data", folder, "--output-folder", tmp_path / "out"]
    args += [word for model in models for word in ("-m", model)]
    code, out, err = medteb(*args, "-q")
    assert (code, err) == (0, "")
    compared = [line for line in out.splitlines() if "p = " in line]
    assert len(compared) == 3
    assert any("tiny-retrieval: medteb/bm25-char-bigram - local/tiny-encoder = " in line for line in compared)
    assert "  judged@10  condensed nDCG@10   bpref" in out
    assert "|" not in out
    code, out, err = medteb(*args, "--markdown")
    assert (code, "saved before" in err) == (0, True)
    assert [line for line in out.splitlines() if "p = " in line] == [f"- {line}" for line in compared]
    assert out.startswith("| model | tiny-retrieval (nDCG@10) ")
    holes = json.loads(medteb(*args, "--json")[1])["rows"][2]["scores"][folder.name]["holes"]
    assert holes["judged_at_10"] == pytest.approx(5 / 18, abs=1e-5)  # of 6 documents for each of 3 queries


def test_rankings_are_written_and_scored_as_trec_runs(go, make_folder, tmp_path):
    folder = make_folder("Retrieval")
    code, first, err = go("--data", folder, "-m", "bm25-char-bigram", "--trec")
    assert code == 0, err
    (run,) = (tmp_path / "out").rglob("*.trec")
    assert run.read_text().split()[1] == "Q0"
    assert run.with_suffix(".qrels").read_text().splitlines()[0].split()[1] == "0"
    code, second, err = go("--data", folder, "-m", run)
    assert code == 0, err
    cells = [report["rows"][0]["scores"][folder.name] for report in (first, second)]
    assert cells[0]["score"] == pytest.approx(cells[1]["score"], abs=1e-5)
    assert second["rows"][0]["model"] == "run/tiny-retrieval"
    run.write_text("q1 Q0 nowhere 1 1.0 x\n")
    assert go("--data", folder, "-m", run)[0] == 1
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"_id": "new", "title": "", "text": "新"}) + "\n")
    assert go("--data", folder, "-m", "bm25-char-bigram")[0] == 0
    assert not run.exists()  # it was of other data


def test_pickled_weights_are_refused(go, make_folder, tmp_path):
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    code, _, err = go("--data", make_folder("STS"), "-m", folder)
    assert (code, "safetensors" in err) == (2, True)


def test_a_benchmark_runs_what_can_be_run_and_lists_the_rest(go, data_root, monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub\nsecond line")

    monkeypatch.setattr("mteb.abstasks.retrieval.AbsTaskRetrieval.load_data", offline)
    monkeypatch.setattr("datasets.load_dataset", offline)
    code, report, err = go("-b", "MedTEB(cmn, v1)", "-m", "bm25-char-bigram")
    assert code == 0, err
    assert set(report["rows"][0]["scores"]) == {"MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"}
    assert len(report["left_out"]) == 2
    assert all("Couldn't reach the Hub second line" in reason for reason in report["left_out"].values())
    # A task that was asked for by its name is an error.
    name = next(iter(report["left_out"]))
    code, report, _ = go("-t", name, "-m", "bm25-char-bigram")
    assert (code, f"on {name}: " in report["errors"][0]) == (1, True)


def test_problems_of_the_data_stop_the_run_before_mteb_is_imported(make_folder, tmp_path):
    folder = make_folder("STS")
    with (folder / "test.jsonl").open("a") as stream:
        stream.write("{\n[]\n")
    code = (
        "import sys; from medteb_mteb.cli import main; sys.argv[0] = 'medteb'\ntry: main()\n"
        "except SystemExit as stop: print(stop.code, [m for m in ('mteb', 'torch') if m in sys.modules])"
    )
    args = [sys.executable, "-c", code, "run", "-m", "bm25-jieba", "--data", folder]
    done = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "2 []\n"
    assert "test.jsonl:7" in done.stderr


def test_names_of_tasks_cannot_control_the_terminal(medteb, make_folder, tmp_path):
    folder = make_folder("STS")
    (folder / "README.md").write_text('---\nmedteb: {name: "a\\x9b2Jb"}\n---\n')
    args = ["run", "--data", folder, "-m", "bm25-jieba", "--output-folder", tmp_path]
    for words in ([], ["--markdown"], ["-m", "./nowhere"]):
        _, out, err = medteb(*args, *words)
        assert not set(out + err) & set("\x1b\x9b")
