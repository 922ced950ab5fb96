"""Rubrics as a task of Inspect, with its mock model."""

from __future__ import annotations

import pytest

from mar_st.errors import MarError

inspect_ai = pytest.importorskip("inspect_ai", reason="the extra medteb[inspect] is not installed")


def test_inspect_runs_rubrics_with_both_scores(tmp_path, write):
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from medteb_mteb.curation.rubrics.inspect_task import rubrics_task

    criteria = [{"criterion": "drink water", "points": 2}, {"criterion": "take antibiotics", "points": -4}]
    rows = [
        {"_id": name, "prompt": [{"role": "user", "content": name}], "rubrics": criteria}
        for name in ("a", "b")
    ]
    rubrics = write(tmp_path / "rubrics.jsonl", rows)
    grader = tmp_path / "words.yaml"
    grader.write_text("{name: words, rule: words, threshold: 1}")
    with pytest.raises(MarError, match="anonymize"):
        rubrics_task(str(rubrics), str(grader))
    task = rubrics_task(str(rubrics), str(grader), out=str(tmp_path / "out"), already_anonymous=True)
    answers = ("Drink water.", "Drink water, take antibiotics.")
    outputs = [ModelOutput.from_content("mockllm/model", one) for one in answers]
    for output in outputs:
        output.usage = ModelUsage()  # else it downloads a tokenizer to count
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none", max_samples=1)
    assert log.status == "success", log.error
    metrics = {name: one.value for name, one in log.results.scores[0].metrics.items()}
    # Ratios by hand: 2 of 2 and 2 - 4 of 2.
    assert metrics == {"clipped per case": 0.5, "clipped mean": 0.0}
