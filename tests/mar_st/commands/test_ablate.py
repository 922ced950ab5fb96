from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mar_st.cli import main
from mar_st.study import load_study
from mar_st.study.schema import Study

PAGE = Path(__file__).parents[3] / "docs/how-to/ablate.md"


@pytest.fixture
def command(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["mar", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.mark.slow
def test_the_plan_of_the_shipped_study_counts_shared_stages(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("ablate", "mini", "--plan")
    assert (code, err) == (0, "")
    study, lines = load_study("mini"), out.splitlines()
    assert lines[0] == f"mini: {len(study.rows)} rows x {len(study.seeds)} seeds, full model full"
    (full,) = (line for line in lines if line.startswith("  full "))
    assert "(shared)" not in full
    (no_align,) = (line for line in lines if line.startswith("  no-align "))
    assert no_align.count("(shared)") == 2
    assert re.search(r"16 are shared with a row above, 0 are finished, 16 will be trained", lines[-1])
    assert list(tmp_path.iterdir()) == []  # a plan leaves no trace
    _, part, _ = command("ablate", "mini", "--plan", "--row", "no-joint", "--seeds", "1")
    assert part.splitlines()[0] == "mini: 2 rows x 1 seeds, full model full"


@pytest.mark.slow
def test_a_rehearsal_tries_every_row_and_names_those_that_fail(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = {
        "name": "two",
        "base": "mini-symmetric-query",
        "changes": {"compile": False, "precision": "fp32"},
        "full": "whole",
        "seeds": 1,
        "rows": [{"name": "broken", "changes": {"data": {"sts": {"path": "gone.jsonl"}}}}, {"name": "whole"}],
        "tasks": [{"name": "sts", "path": "MedTEBSTS"}],
    }
    Path("two.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    code, out, err = command("ablate", "two.yaml", "--rehearse")
    assert code == 2
    assert "rehearsed whole: all stages trained, resumed, and left a model that loads" in out
    assert "row broken: before the first stage: MarError" in err
    assert err.splitlines()[-1].startswith("mar: error: 1 of 2 rows failed: broken.")
    assert (tmp_path / "runs" / "two-rehearsal" / "recipes" / "broken.yaml").is_file()
    code, out, _ = command("ablate", "two.yaml", "--rehearse", "--tiny")  # with data of the package
    assert code == 0
    assert out.count("all stages trained") == 2
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_rehearsal_leaves_all_else_in_the_folder_of_the_study(command, tmp_path, monkeypatch):
    monkeypatch.setattr("mar_st.commands.rehearse.run", lambda recipe, out, **_: out.mkdir())
    study = tmp_path / "study"
    (study / "stages").mkdir(parents=True)
    (study / "table.md").write_text("| row |")
    code, _, err = command("ablate", "mini", "--rehearse", "--tiny", "--out", study)
    assert (code, err) == (0, "")
    assert {path.name for path in study.iterdir()} == {"stages", "table.md"}
    (study / "rehearsal").mkdir()
    (study / "rehearsal" / "notes.txt").write_text("mine")
    code, _, err = command("ablate", "mini", "--rehearse", "--tiny", "--out", study)
    assert code == 2
    assert "something else than a rehearsal" in err
    assert (study / "rehearsal" / "notes.txt").is_file()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["mimi"], "Did you mean 'mini'"),
        (["mini", "--row", "nope"], "no row 'nope'"),
        (["mini", "--seeds", "9"], "has 2 seeds; got 9"),
        (["mini", "--tiny"], "--tiny goes with --rehearse"),
    ],
)
def test_mistakes_are_one_line(command, args, message):
    code, _, err = command("ablate", *args, "--plan")
    assert code == 2
    assert err.startswith("mar: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_the_study_in_the_docs_is_possible():
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    study = Study.model_validate(yaml.safe_load(block))
    assert [row.name for row in study.rows] == ["full", "no-align", "warmer", "distill"]


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['mar', 'ablate', '--help']\n"
        "from mar_st.cli import main\n"
        "try: main()\n"
        "finally: assert not {'torch', 'transformers', 'sentence_transformers', 'numpy'} & set(sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "--plan" in process.stdout
