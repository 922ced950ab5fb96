from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from mar_st.encode.folder import write_vectors
from mar_st.recipes.load import recipe_names


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['mar', '--help']\n"
        "from mar_st.cli import main\n"
        "try: main()\n"
        "finally: assert not {'torch', 'transformers', 'sentence_transformers', 'faiss'} & set(sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert all(name in process.stdout for name in ("recipes", "train", "info"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "mar-mimi"], "Did you mean 'mar-mini'"),
        (["train", "nowhere.yaml"], "No 'nowhere.yaml'"),
        (["train", "mar-mini", "--set", "sede=1"], "sede"),
        (["train", "mar-mini", "--set", "sede"], "KEY=VALUE"),
        (["train", "mar-mini", "--save-steps", "0"], "--save-steps"),
        (["info", "."], "no router_config.json"),
        (["info", "nowhere"], "nowhere is no folder"),
        (["nope"], "No such command"),
        (["train", "--nope"], "No such option"),
        (["search", "血压高头晕吃什么药" * 12, "x"], "File name too long"),
    ],
)
def test_user_errors_are_one_line_and_exit_code_2(run_mar, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run_mar(*args)
    assert (code, out) == (2, "")
    assert err.startswith("mar: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [[], ["index"], ["train"], ["index", "build"]])
def test_without_arguments_the_help_is_printed(run_mar, words):
    code, out, err = run_mar(*words)
    assert (code, err) == (0, "")
    assert "Usage: " in out
    if not words:
        places = [out.index(f"│ {name} ") for name in ("train", "encode", "search", "serve")]
        assert places == sorted(places)


def test_version_is_that_of_the_distribution(run_mar):
    from importlib.metadata import version

    import mar_st

    code, out, _ = run_mar("--version")
    assert (code, out.strip()) == (0, f"medteb {version('medteb')}")
    assert mar_st.__version__ == version("medteb")


def test_every_public_name_of_the_package_exists(tmp_path):
    import mar_st

    assert {name for name in mar_st.__all__ if getattr(mar_st, name, None) is None} == set()


def test_recipes_are_listed(run_mar):
    code, out, err = run_mar("recipes", "--json")
    assert (code, err) == (0, "")
    assert list(json.loads(out)) == recipe_names()
    assert all(json.loads(out).values())
    code, out, _ = run_mar("recipes")
    assert [line.partition(":")[0] for line in out.splitlines()] == recipe_names()


def test_train_keeps_a_finished_run_and_refuses_another_recipe(run_mar, recipe_file, finished):
    code, out, err = run_mar("train", recipe_file, "--out", finished)
    assert (code, err.count("finished before, kept")) == (0, 4)
    assert str(finished / "model") in out
    code, _, err = run_mar("train", recipe_file, "--out", finished, "--set", "name=other")
    assert (code, "another recipe" in err) == (2, True)


def test_info_describes_a_folder(run_mar, mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    code, out, _ = run_mar("info", tmp_path, "--json")
    assert code == 0
    assert json.loads(out)["routes"]["query"]["model_type"] == "gte"
    write_vectors(tmp_path / "vectors", ["a", "b"], np.eye(2, dtype=np.float32))
    code, out, _ = run_mar("info", tmp_path / "vectors", "--json")
    assert code == 0
    assert (json.loads(out)["count"], json.loads(out)["settings"]["dim"]) == (2, 2)
