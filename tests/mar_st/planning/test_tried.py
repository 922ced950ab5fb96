"""Seconds of a stage from those of its measured parts."""

from __future__ import annotations

import pytest

from mar_st.planning.tried import Trial

TRIAL = Trial(step=2, once=30, start=5, teacher=0.01, evaluation=7, finish=1, memory=1)


def test_the_seconds_of_a_stage_are_the_sum_of_its_parts():
    assert TRIAL.seconds(steps=100, texts=1000, evaluations=3) == 5 + 30 + 200 + 10 + 21 + 1


@pytest.mark.parametrize(
    ("more", "seconds"), [({"steps": 110}, 20), ({"texts": 1500}, 5), ({"evaluations": 5}, 14)]
)
def test_more_work_takes_longer_by_its_own_measure(more, seconds):
    work = {"steps": 100, "texts": 1000, "evaluations": 3}
    assert TRIAL.seconds(**work | more) - TRIAL.seconds(**work) == pytest.approx(seconds)


def test_a_stage_of_no_steps_still_starts_and_finishes():
    assert TRIAL.seconds(steps=0, texts=0, evaluations=0) == TRIAL.start + TRIAL.once + TRIAL.finish
