from __future__ import annotations

import sys

import pytest

from mar_st.cli import main


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["mar", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.mark.thorough
def test_a_rehearsal_prints_a_line_per_stage_and_cleans_up(command, tmp_path):
    code, out, _ = command("train", "--rehearse", "--tiny", "mini-symmetric-query")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 3, out
    first, line, last = lines
    assert first == "rehearsing mini-symmetric-query: 1 stages in runs/mini-symmetric-query-rehearsal"
    assert line.startswith("symmetric        20 steps, resumed from 10, ")
    assert "loss" in line
    assert last.startswith("rehearsed mini-symmetric-query")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.slow
def test_a_named_folder_is_kept(command, tmp_path):
    code, _, _ = command("train", "--rehearse", "--tiny", "mini-symmetric-query", "--out", "kept")
    assert code == 0
    assert (tmp_path / "kept" / "01-symmetric" / "model").is_dir()


def test_a_failure_is_exit_code_2_and_one_line(command, tmp_path):
    # The real recipe, whose data are not there.
    code, _, err = command("train", "--rehearse", "mini-symmetric-query", "--set", "data.sts.path=gone.jsonl")
    assert code == 2
    assert "before the first stage: MarError" in err.splitlines()[-1]
    assert "gone.jsonl" in err


@pytest.mark.thorough
def test_tiny_alone_trains_to_the_end(command, tmp_path):
    settings = ["--set", "stages.symmetric.epochs=0.5"]
    code, _, _ = command("train", "--tiny", "mini-symmetric-query", *settings)
    assert code == 0
    assert (tmp_path / "runs" / "mini-symmetric-query" / "model" / "modules.json").is_file()
