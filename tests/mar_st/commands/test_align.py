from __future__ import annotations

from typer.testing import CliRunner

from mar_st.cli import app

ARGUMENTS = ["align", "--teacher", "nowhere", "--out", "out", "--queries", "queries.jsonl"]


def test_settings_of_a_ladder_need_a_ladder():
    result = CliRunner().invoke(app, [*ARGUMENTS, "--default-rung", "2"])
    assert result.exit_code == 2
    assert "--ladder" in result.output


def test_a_ladder_is_checked_before_the_teacher_is_loaded():
    result = CliRunner().invoke(app, [*ARGUMENTS, "--ladder", "1,two"])
    assert result.exit_code == 1
    assert "got 'two' in '1,two'" in str(result.exception)
