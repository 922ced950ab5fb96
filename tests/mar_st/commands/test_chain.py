"""Tests of the commands from the packaged corpus to scores, which must be those of mteb."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TASK = Path(__file__).parents[3] / "tasks" / "MedTEBRetrieval"


def mar(*arguments) -> str:
    command = [sys.executable, "-m", "mar_st.cli", *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_search_with_the_exported_encoder_scores_as_mteb_does(tmp_path):
    import mteb

    model, task = mteb.get_model("medteb/mar-mini"), mteb.get_task("MedTEBRetrieval")
    results = mteb.evaluate(model, [task], cache=None, overwrite_strategy="always")
    expected = results.task_results[0].scores["test"][0]["ndcg_at_10"]
    mar("encode", "mar-mini", TASK, tmp_path / "vectors")
    mar("index", "build", tmp_path / "vectors", tmp_path / "index")
    mar("export", "mar-mini", tmp_path / "encoder", "--format", "openvino-int8")
    queries = ("--queries", TASK / "queries.jsonl", "--qrels", TASK / "qrels" / "test.tsv", "--json")
    exported = json.loads(mar("search", tmp_path / "index", "--encoder", tmp_path / "encoder", *queries))
    original = json.loads(mar("search", tmp_path / "index", "--encoder", "mar-mini", *queries))
    assert original["ndcg@10"] == pytest.approx(expected, abs=1e-4)
    assert exported["ndcg@10"] == pytest.approx(expected, abs=2e-3)
    assert exported["queries"] == 300
