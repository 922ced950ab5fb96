from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from medteb_mteb.editions import load_edition, write_manifest
from medteb_mteb.folders import inspect_folder


def result_files(output):
    return {path.stem: path for path in output.glob("results/*/*/*.json") if path.stem != "model_meta"}


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['medteb', 'run', '--help']\n"
        "from medteb_mteb.cli import main\n"
        "try: main()\n"
        "finally: assert not {'mteb', 'torch', 'datasets', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--data" in done.stdout


@pytest.mark.parametrize("group", [[], ["edition"], ["review"], ["synthesize"], ["trec"], ["build"]])
def test_summaries_in_lists_of_commands_are_not_cut(medteb, monkeypatch, group):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = medteb(*group, "--help")
    listed = out.partition("Commands:")[2]
    assert code == 0
    assert listed.count("\n") >= 2
    assert "..." not in listed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "--nope"], "No such option"),
        (["run", "-t", "MedTEBSTS"], "no model given"),
        (["run", "-m", "bm25-jieba"], "no task given"),
        (["run", "-m", "bm25-jieba", "-t", "STS1"], "task STS1: "),
        (["run", "-m", "bm25-jieba", "-t", "NoTask"], "task NoTask: 'NoTask' not found"),
        (["run", "-m", "bm25-jieba", "-b", "MedTEB"], "benchmark MedTEB: "),
        (["run", "-m", "bm25-jieb", "-t", "STS12"], "Did you mean"),
        (["run", "-m", "./nowhere", "-t", "STS12"], "model ./nowhere: no such folder"),
        (["run", "-m", "bm25-jieba", "-m", "bm25-jieba", "-t", "STS12"], "given twice"),
        (["run", "-m", "bm25-jieba", "--data", "nowhere"], "nowhere: no such folder"),
        (["run", "-m", "bm25-jieba", "--json", "--markdown"], "choose one of --json and --markdown"),
        (["run", "-m", "bm25-jieba", "folder"], "data folders come after --data"),
        (["edition", "show", "Nope"], "No edition of task 'Nope'"),
        (["edition", "build", "full", "out"], "no edition 'full' can be built"),
        (["diversify", "in", "out"], "Missing option '--kind'. Choose from: queries, documents"),
        (["edition", "verify", "./nowhere"], "no manifest.json"),
    ],
)
def test_user_errors_are_one_line_and_exit_code_2(medteb, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = medteb(*args)
    assert (code, out) == (2, "")
    assert err.startswith("medteb: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_problems_of_the_data_stop_the_run_with_file_and_line(medteb, make_folder, tmp_path):
    folder = make_folder("STS")
    with (folder / "test.jsonl").open("a") as stream:
        stream.write("{\n[]\n")
    code, _, err = medteb("run", "-m", "bm25-jieba", "--data", folder, "--output-folder", tmp_path / "out")
    assert code == 2
    assert "tiny-sts: 2 problems\n  test.jsonl:7: malformed JSON" in err
    assert "  test.jsonl:8: expected a JSON object, got list" in err


KINDS = ["Retrieval", "Reranking", "STS", "PairClassification", "Classification"]


def test_every_type_of_folder_runs_and_is_saved_in_mtebs_format(
    medteb, make_folder, encoder_folder, tmp_path
):
    output = tmp_path / "out"
    folders = [make_folder(kind) for kind in [*KINDS, "Clustering"]]
    code, out, err = medteb(
        "run", "--data", *folders, "-m", encoder_folder, "--output-folder", output, "--json"
    )
    assert code == 0, err
    document = json.loads(out)
    (row,) = document["rows"]
    assert row["model"] == "local/tiny-encoder"
    assert document["errors"] == []
    assert set(row["scores"]) == {folder.name for folder in folders}
    for folder in folders:
        cell = row["scores"][folder.name]
        saved = json.loads(result_files(output)[folder.name].read_text())
        assert saved["dataset_revision"] == cell["dataset_revision"] == inspect_folder(folder).revision()
        assert saved["scores"]["test"][0]["main_score"] == cell["score"]
        if folder.name == "tiny-clustering":
            assert cell["low"] is None
            assert "no score per text" in cell["note"]
        else:
            assert cell["low"] <= cell["score"] <= cell["high"]


def test_a_damaged_saved_result_is_evaluated_again(medteb, make_folder, encoder_folder, tmp_path):
    folder, output = make_folder("STS"), tmp_path / "out"
    args = ("run", "--data", folder, "-m", encoder_folder, "--output-folder", output, "--json")
    _, first, _ = medteb(*args)
    path = result_files(output)[folder.name]
    whole = path.read_bytes()
    for damaged in (whole[:300], bytes(64), b"", b"[]", b"[" * 100_000):
        path.write_bytes(damaged)
        code, out, err = medteb(*args)
        assert (code, out) == (0, first)
        assert "the saved result is damaged (" in err
        assert json.loads(path.read_bytes())["scores"] == json.loads(whole)["scores"]


def test_results_are_reused_until_data_or_model_change(medteb, make_folder, encoder_folder, tmp_path):
    folder, output, model = make_folder("STS"), tmp_path / "out", tmp_path / "my-model"
    shutil.copytree(encoder_folder, model)

    def run(*more):
        code, out, err = medteb(
            "run", "--data", folder, "-m", model, "--output-folder", output, "--json", *more
        )
        assert code == 0, err
        return json.loads(out)["rows"][0], err

    first, err = run()
    assert "saved before" not in err
    again, err = run()
    assert "saved before" in err
    assert again == first
    _, err = run("--overwrite")
    assert "saved before" not in err

    path = folder / "test.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:5]), encoding="utf-8")
    changed, err = run()
    assert "is of other data" in err
    assert changed["scores"]["tiny-sts"]["items"] == 5
    assert changed["model_revision"] == first["model_revision"]

    config = model / "config_sentence_transformers.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "similarity_fn_name": "dot"}))
    other, err = run()
    assert "saved before" not in err
    assert other["model_revision"] != first["model_revision"]
    (model / "README.md").write_text("the card does not count")
    _, err = run()
    assert "saved before" in err


def test_holes_are_shown_beside_the_score(medteb, make_folder, encoder_folder, tmp_path):
    folder = make_folder("Retrieval")
    arguments = ("run", "--data", folder, "-m", encoder_folder, "--output-folder", tmp_path / "out")
    code, out, err = medteb(*arguments, "--json")
    assert code == 0, err
    holes = json.loads(out)["rows"][0]["scores"][folder.name]["holes"]
    assert holes["judged_at_10"] is None
    assert "not known" in holes["note"]
    (folder / "judged_negatives.tsv").write_text("query-id\tcorpus-id\nq1\td2\n")
    code, out, err = medteb(*arguments, "--markdown")
    assert code == 0, err
    assert "is of other data" in err  # a result without these scores is not taken for one with them
    assert "| judged@10 | condensed nDCG@10 | bpref |" in out
    assert "medteb: warning: tiny-retrieval, local/tiny-encoder: only" in err
    code, out, err = medteb(*arguments, "--json")
    assert "saved before" in err
    holes = json.loads(out)["rows"][0]["scores"][folder.name]["holes"]
    assert holes["judged_at_10"] == pytest.approx(5 / 18, abs=1e-5)  # of 6 documents for each of 3 queries


def test_a_failing_task_loses_nothing_else(medteb, make_folder, encoder_folder, tmp_path, monkeypatch):
    from mteb.abstasks import AbsTaskPairClassification

    def fail(self, *args, **kwargs):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(AbsTaskPairClassification, "_evaluate_subset", fail)
    folders = [make_folder(kind) for kind in ("STS", "PairClassification", "Retrieval")]
    output = tmp_path / "out"
    code, out, err = medteb(
        "run", "--data", *folders, "-m", encoder_folder, "--output-folder", output, "--markdown"
    )
    assert code == 1
    assert "medteb: failed: local/tiny-encoder on tiny-pairclassification: out of memory" in err
    assert set(result_files(output)) == {"tiny-sts", "tiny-retrieval"}
    assert len(out.splitlines()) == 3
    assert out.splitlines()[2].split(" | ")[2] == "-"


def test_a_model_that_cannot_be_loaded_leaves_the_others(medteb, make_folder, encoder_folder, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(encoder_folder, broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    code, out, err = medteb(
        "run", "--data", make_folder("STS"), "-m", broken, "-m", encoder_folder,
        "--output-folder", tmp_path / "out", "--json",
    )  # fmt: skip
    assert code == 1
    assert "local/broken: the model cannot be loaded" in err
    rows = {row["model"]: row["scores"] for row in json.loads(out)["rows"]}
    assert rows["local/broken"] == {}
    assert "tiny-sts" in rows["local/tiny-encoder"]


@pytest.mark.thorough
def test_scores_do_not_depend_on_what_ran_before(medteb, make_folder, encoder_folder, tmp_path):
    # mteb's clustering draws from the task's random state; the second model must not get later draws.
    twin = tmp_path / "twin"
    shutil.copytree(encoder_folder, twin)
    code, out, err = medteb(
        "run", "--data", make_folder("Clustering"), "-m", encoder_folder, "-m", twin,
        "--output-folder", tmp_path / "out", "--json",
    )  # fmt: skip
    assert code == 0, err
    first, second = (row["scores"]["tiny-clustering"]["score"] for row in json.loads(out)["rows"])
    assert first == second


def test_two_models_are_compared_on_the_same_queries(medteb, make_folder, encoder_folder, tmp_path):
    code, out, err = medteb(
        "run", "--data", make_folder("Retrieval"), "-m", "bm25-char-bigram", "-m", encoder_folder,
        "--output-folder", tmp_path / "out",
    )  # fmt: skip
    assert code == 0, err
    assert "nDCG@10" in out
    assert "tiny-retrieval: medteb/bm25-char-bigram - local/tiny-encoder = " in out


@pytest.mark.thorough
def test_a_configuration_without_weights_needs_a_seed(medteb, make_folder, gte_config_folder, tmp_path):
    folder = make_folder("STS")
    (folder / "README.md").write_text("---\nmedteb: {main_score: cosine_pearson}\n---\n")
    args = ["run", "--data", folder, "-m", gte_config_folder, "--json", "--output-folder"]
    code, _, err = medteb(*args, tmp_path / "a")
    assert code == 2
    assert "--random-weights" in err
    scores = []
    for output, seed in (("a", 1), ("b", 1), ("c", 2)):
        code, out, err = medteb(*args, tmp_path / output, "--random-weights", seed)
        assert code == 0, err
        (row,) = json.loads(out)["rows"]
        assert row["model"] == f"local/gte-config-random-{seed}"
        scores.append(row["scores"]["tiny-sts"]["score"])
    assert scores[0] == scores[1] != scores[2]


def test_pickled_weights_are_refused(medteb, make_folder, gte_config_folder, tmp_path):
    folder = tmp_path / "pickled"
    shutil.copytree(gte_config_folder, folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    code, _, err = medteb("run", "--data", make_folder("STS"), "-m", folder)
    assert code == 2
    assert "safetensors" in err


def test_data_folders_named_like_mtebs_own_tasks_are_refused(medteb, make_folder, encoder_folder):
    code, _, err = medteb("run", "--data", make_folder("STS", "STS12"), "-m", encoder_folder)
    assert code == 2
    assert "'STS12' is the name of one of mteb's own tasks" in err


def test_registered_tasks_run_on_the_edition_in_force(medteb, make_folder, tmp_path, monkeypatch):
    folder = make_folder("STS", "data/MedTEBSTS")
    edition = write_manifest(
        folder, task="MedTEBSTS", name="own", version="1", licence="mit", counts={"test": 6}
    )
    monkeypatch.setenv("MEDTEB_DATA", str(folder.parent))
    code, out, err = medteb(
        "run", "-t", "MedTEBSTS", "-m", "bm25-char-bigram", "--output-folder", tmp_path / "out", "--json"
    )
    assert code == 0, err
    (row,) = json.loads(out)["rows"]
    cell = row["scores"]["MedTEBSTS"]
    assert (cell["metric"], cell["dataset_revision"], cell["items"]) == ("cosine_pearson", edition.digest, 6)


@pytest.mark.thorough
def test_predictions_are_kept_on_request(medteb, make_folder, encoder_folder, tmp_path):
    output = tmp_path / "out"
    args = ["run", "--data", make_folder("Retrieval"), "-m", encoder_folder, "--output-folder", output]
    assert medteb(*args)[0] == 0
    assert not list(output.rglob("predictions/**/*.json"))
    assert not list(output.glob(".predictions-*"))
    assert "saved without predictions; evaluating again" in medteb(*args, "--save-predictions")[2]
    assert "(saved before)" in medteb(*args, "--save-predictions")[2]
    (saved,) = output.rglob("predictions/**/*.json")
    assert set(json.loads(saved.read_text())["default"]["test"]) == {"q1", "q2", "q3"}


def test_an_edition_cannot_send_control_characters_to_the_terminal(medteb, make_folder):
    folder = make_folder("STS")
    medteb("edition", "write", folder, "--task", "Mine", "--license", "mit\x1b[2J", "--name", "n\x9b1m")
    said = medteb("edition", "show", folder)[1]
    assert not set(said) & set("\x1b\x9b")
    assert r"mit\x1b[2J" in said


def test_editions_are_written_listed_shown_and_verified(medteb, make_folder, monkeypatch):
    folder = make_folder("Retrieval", "data/Mine")
    code, out, err = medteb("edition", "write", folder, "--license", "mit", "--name", "own")
    assert code == 0, err
    edition = load_edition(folder)
    assert out.split()[:2] == ["Mine", edition.digest]
    assert edition.counts == {"queries": 3, "corpus": 6, "qrels": 4}

    monkeypatch.setenv("MEDTEB_DATA", str(folder.parent))
    listed = json.loads(medteb("edition", "list", "--json")[1])
    assert [(e["task"], e["digest"]) for e in listed if e["name"] == "own"] == [("Mine", edition.digest)]
    assert "own 1" in medteb("edition", "list")[1]
    assert edition.digest in medteb("edition", "show", "Mine")[1]
    assert json.loads(medteb("edition", "show", folder, "--json")[1])["licence"] == "mit"
    assert medteb("edition", "verify", "Mine")[:2] == (0, f"Mine  {edition.digest[:12]}  ok, 3 files\n")

    with (folder / "queries.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"_id": "q4", "text": "问"}\n')
    code, _, err = medteb("edition", "verify", "Mine")
    assert code == 2
    assert "queries.jsonl has" in err
    code, _, err = medteb("edition", "write", folder, "--license", "mit")
    assert code == 2
    assert "query 'q4' has no judgement" in err
    assert load_edition(folder) == edition  # a refused write changes nothing


@pytest.mark.slow
def test_the_version_is_printed(medteb):
    code, out, _ = medteb("--version")
    assert code == 0
    assert out.startswith("medteb ")


def test_a_text_in_place_of_a_path_is_one_error(medteb):
    code, out, err = medteb("validate", "血压高头晕吃什么药" * 12)
    assert (code, out) == (2, "")
    assert "File name too long" in err
    assert "Give the path of an existing file or folder" in err
    assert err.count("\n") == 1
