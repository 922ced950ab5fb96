"""What no change of the code may change: scores, vectors, rankings, labels, recall of identifiers, losses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.golden import compute

FOLDER = Path(__file__).parent


def golden(name: str):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_scores_of_make_run_to_the_last_digit(tmp_path):
    assert compute.run_scores(tmp_path) == golden("run_scores")


def test_vectors_of_every_query_encoder_of_mar_zh():
    pytest.importorskip("mar_zh")
    found = compute.mar_zh_vectors()
    with np.load(FOLDER / "mar_zh_vectors.npz") as expected:
        assert set(found) == set(expected.files)
        for route in expected.files:
            np.testing.assert_allclose(found[route], expected[route], atol=1e-5, rtol=0, err_msg=route)


def test_ten_best_answers_for_the_questions_of_the_sample(tmp_path):
    pytest.importorskip("mar_zh")
    assert compute.sample_top10(tmp_path) == golden("sample_top10")


def test_labels_of_the_clinic_build(tmp_path):
    assert compute.clinic_labels(tmp_path) == golden("clinic_labels")


def test_identifiers_found_in_the_labelled_files():
    assert compute.anonymised() == golden("anonymised")


def test_losses_of_every_kind_of_stage(tmp_path):
    found = compute.losses(tmp_path)
    expected = golden("losses")
    assert set(found) == set(expected)
    for stage, values in expected.items():
        np.testing.assert_allclose(found[stage], values, rtol=1e-4, err_msg=stage)
