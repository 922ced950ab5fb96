"""The flagship's steps on small encoders."""

from __future__ import annotations

import json

import flagship
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder in which all steps ran."""
    folder = tmp_path_factory.mktemp("flagship")
    flagship.main([str(folder), "--tiny", "--documents", "20"])
    return folder


def result(work, step):
    return json.loads((work / "results" / f"{step}.json").read_text(encoding="utf-8"))


def test_every_step_ran_and_was_measured(work):
    steps = list(flagship.Flagship(work, tiny=True, documents=20, characters=60).commands())
    assert sorted(path.stem for path in (work / "results").iterdir()) == sorted(steps)
    for step in steps:
        assert all(part["peak_mb"] > 50 and part["seconds"] > 0 for part in result(work, step)["parts"])


def test_ways_to_encode_agree(work):
    assert result(work, "encode")["least_cosine"] > 0.99
    assert result(work, "export")["variants"]["native-int8"]["cosine_mean"] > 0.99
    (assembled,) = result(work, "published")["loads"]
    assert assembled["weights_mb"] > 0
    assert len(result(work, "serve")["answer"]["hits"]) == 3


def test_a_second_run_does_missing_steps_and_prints_the_tables(work, capsys):
    before = {path.name: path.stat().st_mtime_ns for path in (work / "results").iterdir()}
    (work / "results" / "index.json").unlink()
    flagship.main([str(work), "--tiny", "--documents", "20"])
    after = {path.name: path.stat().st_mtime_ns for path in (work / "results").iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"index.json"}
    printed = capsys.readouterr().out
    assert "| `mar index " in printed
    assert "| `mar_st.model.published.assemble` |" in printed
