"""Training data and tests are kept apart: what a step must not contain, read from its inputs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from medteb_mteb.curation.pipeline.base import KEEP_AWAY_KEY
from medteb_mteb.curation.pipeline.registry import registered
from medteb_mteb.curation.pipeline.settings import PipelineSettings
from medteb_mteb.curation.pipeline.training_step import TrainingStep, held_out, queries_trained_on
from medteb_mteb.curation.pipeline.work import StepJob, Workspace

PAIRS = {"step": "pairs", "queries": ["queries.jsonl"]}


@pytest.fixture
def step():
    return registered()["pairs"].model_validate(PAIRS)


def test_editions_of_the_build_and_named_texts_are_held_out_each_once(step, edition, save, tmp_path):
    edition(tmp_path / "build", "MedTEBSTS")
    named = save("held-out.jsonl", [{"_id": "t1", "text": "失眠了怎么办"}])
    tests = held_out(
        step, {KEEP_AWAY_KEY: [str(tmp_path / "build")], "against": [str(named), str(named)]}, 0.9
    )
    assert tests.names[-1] == "held-out.jsonl:t1"
    assert tests.names[0].startswith("build:MedTEBSTS/")
    assert tests.texts.count("失眠了怎么办") == 1
    assert {"小孩发烧怎么办", "小孩发热怎么办"} < set(tests.texts)
    assert tests.leaks(["失眠了怎么办", "失眠了吃什么药好", "小孩发烧怎么办"]).keys() == {0, 2}
    assert held_out(step, {}, 0.9).leaks(["失眠了怎么办"]) == {}


def test_the_threshold_decides_what_is_near(step, save):
    paths = {
        "against": [str(save("held-out.jsonl", [{"_id": "t1", "text": "高血压病人平时不能吃什么东西"}]))]
    }
    near = ["高血压病人平时不能吃什么东西呢"]
    assert held_out(step, paths, 0.6).leaks(near)
    assert not held_out(step, paths, 1.0).leaks(near)


@pytest.mark.parametrize("threshold", [0, -0.1, 1.5])
def test_a_threshold_outside_the_range_is_refused(threshold):
    with pytest.raises(ValidationError, match="threshold"):
        registered()["pairs"].model_validate({**PAIRS, "threshold": threshold})


def test_all_steps_that_train_on_texts_alone_are_kept_away_from_tests():
    assert {name for name, cls in registered().items() if issubclass(cls, TrainingStep)} == {
        name for name, cls in registered().items() if cls.TRAINS and cls.WRITES != "editions"
    }


def test_queries_of_all_training_data_under_against_are_collected_in_order(save, tmp_path):
    triples = save("triples.jsonl", [{"query": "甲", "positive": "a", "negative": "b"}])
    save("aligned/queries.jsonl", [{"_id": "1", "text": "乙"}, {"_id": "2", "text": "丙"}])
    save("aligned/corpus.jsonl", [{"_id": "3", "text": "丁"}])
    space = Workspace(PipelineSettings(), tmp_path, tmp_path / "build")

    def job(inputs):
        return StepJob(space, inputs, {}, tmp_path / "out", False, False, lambda line: None)

    assert queries_trained_on(job({"against": [str(triples), str(tmp_path / "aligned")]})) == [
        "甲",
        "乙",
        "丙",
    ]
    assert queries_trained_on(job({"queries": [str(triples)]})) == []
