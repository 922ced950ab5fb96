from __future__ import annotations

from typer.testing import CliRunner

from mar_st.cli import app

ARGUMENTS = ["align", "--teacher", "nowhere", "--out", "out", "--queries", "queries.jsonl"]


def test_settings_of_a_ladder_need_a_ladder():
    for extra in (
        ["--default-rung", "2"],
        ["--eval", "task"],
        ["--ladder-layers", "spread"],
        ["--ladder-bigrams", "9"],
    ):
        done = CliRunner().invoke(app, [*ARGUMENTS, *extra])
        assert done.exit_code == 2
        assert "belong to --ladder" in done.output


def test_vectors_of_token_pairs_need_mean_hidden_states():
    settings = ["--ladder", "1", "--ladder-bigrams", "9", "--ladder-embeddings", "copied"]
    done = CliRunner().invoke(app, [*ARGUMENTS, *settings])
    assert done.exit_code == 2
    assert "needs mean hidden states" in done.output


def test_a_ladder_is_checked_before_the_teacher_is_loaded():
    done = CliRunner().invoke(app, [*ARGUMENTS, "--ladder", "1,two"])
    assert done.exit_code == 1
    assert "got 'two' in '1,two'" in str(done.exception)
