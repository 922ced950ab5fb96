"""The gate: a better model passes, one that was made worse is refused and stops the build."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from tests.medteb_mteb.curation.diseases import DISEASES
from tests.medteb_mteb.curation.loop.conftest import add_slice

import mar_st
from medteb_mteb.curation.loop.gate import GATE

MINI = Path(mar_st.__file__).parent / "models" / "mar-mini"


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory):
    """mar-mini with noise on the weights of its query encoder."""
    import numpy as np

    folder = tmp_path_factory.mktemp("made") / "2026-12" / "model"
    shutil.copytree(MINI, folder)
    path = folder / "query_0_Transformer" / "model.safetensors"
    weights = load_file(path)
    rng = np.random.default_rng(0)
    noisy = {
        key: (one + rng.normal(0, 2 * one.std(), one.shape)).astype(one.dtype) for key, one in weights.items()
    }
    save_file(noisy, path, metadata={"format": "pt"})
    return folder


@pytest.fixture
def compare(tmp_path, run_step):
    """Compares two models on a newest slice, and an earlier one as guard: counts, and gate.json."""
    add_slice(tmp_path, "2026-11", DISEASES[:6])
    add_slice(tmp_path, "2026-12", DISEASES[6:])
    (tmp_path / "slice.json").write_text("{}")

    def call(candidate, served, **options):
        places = {name: tmp_path / name for name in ("live", "results")}
        places["slice"] = tmp_path / "slice.json"
        models = {"candidate": str(candidate), "served": str(served)}
        counts = run_step(GATE, "gate", month="2026-12", **models, **places, **options)
        return counts, json.loads((tmp_path / "gate" / "gate.json").read_text(encoding="utf-8"))

    return call


@pytest.mark.thorough
def test_a_model_made_worse_is_refused_and_a_better_one_passes(compare, spoiled, tmp_path):
    counts, report = compare(spoiled, MINI)
    verdicts = [one["verdict"] for one in report["findings"]]
    assert (report["passed"], verdicts) == (False, ["fail", "fail", "ok"])
    assert str(tmp_path / "gate" / "gate.md") in counts["stopped"]
    scores = {row["model"]: row["scores"] for row in report["rows"]}
    tasks = ["live-2026-12", "live-2026-11"]
    assert all(
        scores["local/2026-12"][task]["score"] < scores["local/mar-mini"][task]["score"] for task in tasks
    )
    gap = report["findings"][0]["numbers"]["difference"]
    expected = scores["local/2026-12"][tasks[0]]["score"] - scores["local/mar-mini"][tasks[0]]["score"]
    assert gap == pytest.approx(expected, abs=1e-5)
    counts, report = compare(MINI, spoiled, slices=0)
    assert (counts["stopped"], report["passed"], len(report["tasks"])) == ("", True, 1)


@pytest.mark.thorough
def test_without_a_gain_only_the_margin_decides(compare, tmp_path):
    same = shutil.copytree(MINI, tmp_path / "2026-12" / "model")
    counts, _ = compare(same, MINI)
    assert counts["stopped"]
    counts, report = compare(same, MINI, better=None)
    assert (counts["stopped"], report["passed"]) == ("", True)
