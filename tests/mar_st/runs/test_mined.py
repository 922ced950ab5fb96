"""Hard negatives that the encoder of a stage mines before the stage."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from mar_st.data.training import read_source
from mar_st.mining.miner import mine
from mar_st.mining.retrievers import Dense
from mar_st.mining.rules import Rules
from mar_st.model.mar import open_model
from mar_st.runs.train import train
from mar_st.stages.columns import encoder_teacher
from mar_st.teachers.store import TeacherStore
from tests.conftest import write_jsonl
from tests.mar_st.train_helpers import silent, triples

pytestmark = pytest.mark.usefixtures("one_thread")

MINE = {"range_max": 20}
FIRST = {"stage": "contrastive", "name": "first", "side": "document", "batch_size": 4, "max_steps": 3,
         "learning_rate": 1.0e-3, "temperature": 0.1}  # fmt: skip
SECOND = {**FIRST, "name": "second", "negatives": 2, "mine": MINE}


@pytest.fixture
def mining_recipe(recipe, tmp_path):
    """A symmetric recipe whose second stage mines negatives with what the first one trained."""
    rows = [{"query": row["query"], "positive": row["positive"]} for row in triples()]
    path = write_jsonl(tmp_path / "pairs.jsonl", rows)

    def build(*overrides, stages=(FIRST, SECOND), **more):
        given = {"data": [{"name": "answers", "path": str(path), "negatives": 0}], **more}
        return recipe(*overrides, query=None, dim=24, stages=list(stages), **given)

    return build


def weights_of(folder):
    return load_file(next(folder.rglob("model.safetensors")))


def equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_stage_trains_on_the_negatives_that_mar_mine_finds(mining_recipe, tmp_path):
    mining = mining_recipe()
    before = train(mining_recipe(stages=[FIRST]), tmp_path / "run", say=silent)
    source = read_source(mining.data[0], mining.seed)
    rules = Rules(num_negatives=2, range_max=20, seed=mining.seed)
    teacher = encoder_teacher(open_model(before), TeacherStore(tmp_path / "store"), mining.data[0])
    found = mine([Dense(teacher)], source.triples, rules=rules)
    assert all(triple.negatives for triple in found.triples)

    told = []
    expected = train(mining, tmp_path / "run", say=told.append)
    assert any("stage second: hard negatives from answers for " in line for line in told)
    rows = [{"query": t.query, "positive": t.positives[0], "negatives": t.negatives} for t in found.triples]
    path = write_jsonl(tmp_path / "mined.jsonl", rows)
    entry = {"name": "answers", "path": str(path), "negatives": 2}
    by_hand = {**SECOND, "mine": None, "data": ["answers"]}
    plain = {**mining.data[0].model_dump(mode="json"), "name": "pairs"}
    two = mining_recipe(stages=({**FIRST, "data": ["pairs"]}, by_hand), data=[plain, entry])
    assert equal(weights_of(expected), weights_of(train(two, tmp_path / "two", say=silent)))


def test_mining_changes_the_training_and_is_part_of_the_identity_of_a_stage(mining_recipe, tmp_path):
    lines = []
    first = weights_of(train(mining_recipe(), tmp_path / "run", say=silent))
    other = mining_recipe("stages.second.mine.relative_margin=0.9")
    second = weights_of(train(other, tmp_path / "run", say=lines.append))
    assert any("stage first" in line and "kept" in line for line in lines)
    assert not equal(first, second)


def test_a_killed_stage_resumes_with_the_same_negatives(mining_recipe, tmp_path, monkeypatch):
    mining = mining_recipe()
    expected = weights_of(train(mining, tmp_path / "whole", say=silent))

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        train(mining_recipe(stages=[FIRST]), tmp_path / "killed", say=silent)
        patched.setattr("mar_st.runs.train.train_contrastive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(mining, tmp_path / "killed", say=silent)
    assert equal(expected, weights_of(train(mining, tmp_path / "killed", say=silent)))
