"""From the packaged corpus to scores, by the commands; mteb on the same model is the measure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TASK = Path(__file__).parents[3] / "tasks" / "MedTEBRetrieval"


def mar(*arguments) -> str:
    command = [sys.executable, "-m", "mar_st.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_search_with_the_exported_encoder_scores_as_mteb_does(tmp_path):
    import mteb

    model, task = mteb.get_model("medteb/mar-mini"), mteb.get_task("MedTEBRetrieval")
    found = mteb.evaluate(model, [task], cache=None, overwrite_strategy="always")
    expected = found.task_results[0].scores["test"][0]["ndcg_at_10"]
    mar("encode", "mar-mini", TASK, tmp_path / "vectors")
    mar("index", "build", tmp_path / "vectors", tmp_path / "index")
    mar("export", "mar-mini", tmp_path / "encoder", "--format", "openvino", "--weight-format", "int8")
    asked = ("--queries", TASK / "queries.jsonl", "--qrels", TASK / "qrels" / "test.tsv", "--json")
    exported = json.loads(mar("search", tmp_path / "index", "--encoder", tmp_path / "encoder", *asked))
    original = json.loads(mar("search", tmp_path / "index", "--encoder", "mar-mini", *asked))
    assert original["ndcg@10"] == pytest.approx(expected, abs=1e-4)
    assert exported["ndcg@10"] == pytest.approx(expected, abs=2e-3)
    assert exported["queries"] == 300
