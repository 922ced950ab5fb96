"""Builds that are refused: with one error, before anything is done."""

from __future__ import annotations

import pytest
import yaml
from tests.medteb_mteb.curation.pipeline.build_steps import STEPS, changed

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline import building as running


def test_resuming_needs_something_to_resume(quiet, write, server):
    with pytest.raises(BuildError, match="holds no build to resume"):
        quiet(write(server), resume=True)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            [{"step": "anonymise", "in": "queries.jsonl"}],
            "'anonymise' is not a step; choose from 'anonymize'",
        ),
        ([{"in": "queries.jsonl"}], "the key 'step' is missing"),
        (
            [{"step": "dedup", "in": "queries.jsonl", "treshold": 0.8}],
            r"steps.0.dedup.treshold: Extra inputs",
        ),
        ([{"step": "dedup", "in": "nowhere.jsonl"}], "there is no step 'nowhere.jsonl' and no "),
        (STEPS[:1] * 2, "two steps are called 'queries'"),
        (
            [{"step": "dedup", "name": "a", "in": "b"}, {**STEPS[0], "name": "b"}],
            "'b' does not come before it",
        ),
        ([{"step": "dedup", "name": "a", "in": "a"}], "'a' does not come before it"),
        (
            changed(STEPS, "labels", **{"in": "pool"}),
            r"expected judgements, but 'pool' \(pool\) writes pools",
        ),
        (changed(STEPS, "labels", weights={"rule-words": 2}), "Weights are for the rule 'weighted'"),
        (changed(STEPS, "labels", judges=["nobody"]), "'nobody' is not a judge"),
        (changed(STEPS, "assemble", list_positives=100), "no place for negatives"),
        (changed(STEPS, "pool", retrievers=[]), "retrievers"),
        ([*STEPS, {**STEPS[-1], "name": "more"}], "two steps write the edition MedTEBReranking"),
        ([], "steps"),
    ],
)
def test_impossible_builds_are_refused_before_anything_is_done(quiet, write, tmp_path, steps, message):
    with pytest.raises(BuildError, match=message):
        quiet(write(steps=steps))
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("steps: [\n", "is not valid YAML"),
        ("- a\n", "must be a mapping with 'steps'"),
        ("out: a\nout: b\nsteps: []\n", "the key 'out' occurs twice"),
        ("steps:\n- {step: dedup, in: queries.jsonl}\nseed: 3\n", "seed: Extra inputs"),
        ("judges: nowhere.yaml\nsteps:\n- {step: dedup, in: queries.jsonl}\n", "nowhere.yaml cannot be read"),
        (yaml.safe_dump({"steps": STEPS}), "Step 'judge' needs judges"),
    ],
)
def test_an_invalid_pipeline_file_is_refused(medteb, texts, tmp_path, content, message):
    path = tmp_path / "bad.yaml"
    path.write_text(content, encoding="utf-8")
    code, _, err = medteb("build", path)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_an_unknown_last_step_is_named(medteb, write):
    code, _, err = medteb("build", write(), "--until", "judged")
    assert code == 2
    assert "The pipeline has no step 'judged'. Its steps are queries, anonymous" in err


def test_the_step_that_fails_is_named(quiet, write, tmp_path):
    (tmp_path / "documents.jsonl").write_text('{"_id": "d1", "body": ""}\n')
    with pytest.raises(ValueError, match=r"documents\.jsonl") as error:
        quiet(write())
    assert "d1" in str(error.value) or ":1" in str(error.value)
    # The finished steps before it are kept.
    assert running.State(tmp_path / "build").records["queries"].finished
