from __future__ import annotations

import json

from mar_st.graded.grader import Grader
from tests.conftest import write_jsonl
from tests.mar_st.conftest import save_cross_encoder


def test_the_command_trains_a_grader(run_mar, tmp_path):
    save_cross_encoder(tmp_path / "base", 1)
    rows = [
        {"query": f"头疼{number}", "document": text, "label": label}
        for number in range(12)
        for label, text in enumerate(["感冒", "咳嗽", "高血压"])
    ]
    data = write_jsonl(tmp_path / "graded.jsonl", rows)
    options = ["--base", tmp_path / "base", "--out", tmp_path / "judge", "--max-length", 16]
    code, out, err = run_mar("cross-encoder", data, *options, "--json")
    assert code == 0, err
    report = json.loads(out[out.index("{\n") :])
    assert report["trained"] == {"0": 7, "1": 7, "2": 7}
    assert report["calibrated"] == {"0": 5, "1": 5, "2": 5}
    assert list(Grader(tmp_path / "judge").thresholds.bounds) == report["bounds"]
    code, out, err = run_mar("cross-encoder", data, *options)
    assert code == 0, err
    assert "kappa: " in out
    code, _, err = run_mar("cross-encoder", tmp_path / "none.jsonl", *options)
    assert code == 2
    assert "There is no" in err
