"""`medteb build`: the command that may be left out, and the others."""

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
