from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "args", [["absent.yaml"], ["--dry-run", "absent.yaml"], ["pipeline", "absent.yaml", "--dry-run"]]
)
def test_a_pipeline_file_needs_no_name_of_a_command(medteb, args):
    code, _, error = medteb("build", *args)
    assert code == 2
    assert "absent.yaml" in error


def test_both_ways_to_build_are_listed(medteb):
    code, out, _ = medteb("build", "--help")
    assert code == 0
    assert "pipeline" in out
    assert "nano" in out


def test_scores_need_kept_rankings(medteb, tmp_path):
    code, _, error = medteb("nano", "score", tmp_path)
    assert (code, "no kept rankings" in error) == (2, True)
    (tmp_path / "x.json").write_text("{}")
    code, _, error = medteb("nano", "score", tmp_path / "x.json")
    assert (code, "expected rankings kept by `medteb run`" in error) == (2, True)
