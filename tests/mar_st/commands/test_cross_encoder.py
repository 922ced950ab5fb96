from __future__ import annotations

import json
import sys

import pytest

from mar_st.cli import main
from mar_st.graded.grader import Grader
from tests.mar_st.conftest import save_cross_encoder


@pytest.fixture
def command(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["mar", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def test_the_command_trains_a_grader(command, tmp_path):
    save_cross_encoder(tmp_path / "base", 1)
    rows = [
        {"query": f"头疼{number}", "document": text, "label": label}
        for number in range(12)
        for label, text in enumerate(["感冒", "咳嗽", "高血压"])
    ]
    data = tmp_path / "graded.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = [
        "--base",
        tmp_path / "base",
        "--out",
        tmp_path / "judge",
        "--max-length",
        16,
    ]
    code, out, err = command("cross-encoder", data, *options, "--json")
    assert code == 0, err
    report = json.loads(out[out.index("{\n") :])
    assert report["trained"] == {"0": 7, "1": 7, "2": 7}
    assert report["calibrated"] == {"0": 5, "1": 5, "2": 5}
    assert list(Grader(tmp_path / "judge").thresholds.bounds) == report["bounds"]
    code, out, err = command("cross-encoder", data, *options)
    assert code == 0, err
    assert "kappa: " in out
    code, _, err = command("cross-encoder", tmp_path / "none.jsonl", *options)
    assert code == 2
    assert "There is no" in err
