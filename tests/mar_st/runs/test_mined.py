"""Hard negatives that the encoder of a stage mines before the stage."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from mar_st.data import read_source
from mar_st.mining import Dense, Rules, mine
from mar_st.model.opening import open_model
from mar_st.planning.plan import plan
from mar_st.recipes.load import RecipeError
from mar_st.runs.mined import MINING_FILE
from mar_st.runs.train import train
from tests.mar_st.train_helpers import QUESTIONS, SYMPTOMS, silent, train_in_two_processes

pytestmark = pytest.mark.usefixtures("one_thread")

MINE = {"range_max": 20, "near_duplicate": None}
FIRST = {"stage": "contrastive", "name": "first", "side": "document", "batch_size": 4, "max_steps": 3,
         "learning_rate": 1.0e-3, "temperature": 0.1}  # fmt: skip
SECOND = {**FIRST, "name": "second", "negatives": 2, "mine": MINE}


@pytest.fixture
def mining_recipe(recipe, tmp_path):
    """A symmetric recipe whose second stage mines negatives with what the first one trained."""
    rows = [
        {"query": symptom + question, "positive": answer.format(symptom)}
        for symptom in SYMPTOMS
        for question, answer in QUESTIONS.items()
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")

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
    before = train(mining, tmp_path / "run", until="first", say=silent)
    source = read_source(mining.data[0], mining.seed)
    rules = Rules(num_negatives=2, top=20, near_duplicate=None, seed=mining.seed)
    found = mine([Dense(open_model(before), prompt="检索：")], source.triples, rules=rules)
    assert all(len(triple.negatives) == 2 for triple in found.triples)

    told = []
    expected = train(mining, tmp_path / "run", say=told.append)
    assert "stage second: hard negatives from answers for 40 of 40 queries; 0 random ones" in told
    lines = [
        json.dumps(
            {"query": t.query, "positive": t.positives[0], "negatives": t.negatives}, ensure_ascii=False
        )
        for t in found.triples
    ]
    (tmp_path / "mined.jsonl").write_text("\n".join(lines), encoding="utf-8")
    entry = {"name": "answers", "path": str(tmp_path / "mined.jsonl"), "negatives": 2}
    by_hand = {**SECOND, "mine": None, "data": ["answers"]}
    plain = {**mining.data[0].model_dump(mode="json"), "name": "pairs"}
    two = mining_recipe(stages=({**FIRST, "data": ["pairs"]}, by_hand), data=[plain, entry])
    assert equal(weights_of(expected), weights_of(train(two, tmp_path / "two", say=silent)))

    report = json.loads((tmp_path / "run/02-second/mining/answers" / MINING_FILE).read_text(encoding="utf-8"))
    assert (report["counts"], report["candidates"]) == (found.counts, found.candidates)
    assert not list((tmp_path / "run").rglob("block-*.json"))


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
        train(mining, tmp_path / "killed", until="first", say=silent)
        patched.setattr("mar_st.runs.train.train_stage", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(mining, tmp_path / "killed", say=silent)
    with monkeypatch.context() as patched:  # nothing is searched again
        patched.setattr(Dense, "search", lambda *args: pytest.fail("searched again"))
        assert equal(expected, weights_of(train(mining, tmp_path / "killed", say=silent)))


@pytest.mark.thorough
def test_two_processes_mine_the_same_negatives(mining_recipe, tmp_path):
    mining = mining_recipe()
    train_in_two_processes(mining, tmp_path / "two.yaml", tmp_path / "run")
    source = read_source(mining.data[0], mining.seed)
    rules = Rules(num_negatives=2, top=20, near_duplicate=None, seed=mining.seed)
    first = open_model(tmp_path / "run/01-first/model")
    expected = mine([Dense(first, prompt="检索：")], source.triples, rules=rules)
    report = json.loads((tmp_path / "run/02-second/mining/answers" / MINING_FILE).read_text(encoding="utf-8"))
    assert report["counts"] == expected.counts
    assert report["scores"] == pytest.approx(expected.scores, rel=1e-3)
    lines = []
    train(mining, tmp_path / "run", say=lines.append)
    assert len([line for line in lines if line.endswith("finished before, kept")]) == 2


def test_queries_without_candidates_take_the_documents_of_their_batch(mining_recipe, tmp_path):
    mining = mining_recipe("stages.second.mine.min_score=2", "stages.second.mine.range_max=100")
    train(mining, tmp_path / "run", say=silent)
    report = json.loads((tmp_path / "run/02-second/mining/answers" / MINING_FILE).read_text(encoding="utf-8"))
    assert report["counts"]["triples without a negative"] == report["counts"]["triples written"] == 40


def test_paraphrases_are_searched_among_the_queries_too(mining_recipe, tmp_path):
    data = [{**mining_recipe().data[0].model_dump(mode="json"), "symmetric": True}]
    train(mining_recipe(data=data), tmp_path / "run", say=silent)
    report = json.loads((tmp_path / "run/02-second/mining/answers" / MINING_FILE).read_text(encoding="utf-8"))
    assert report["counts"]["documents"] == report["counts"]["queries"] + 40


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({**SECOND, "negatives": None}, "mine needs the number of hard negatives per query"),
        ({**SECOND, "negatives": 0}, "mine needs the number of hard negatives per query"),
        ({**SECOND, "negatives": 21}, "leave fewer than the 21 negatives"),
        ({**SECOND, "mine": {"range_min": 19, "range_max": 20}}, "leave fewer than the 2 negatives"),
        ({**SECOND, "mine": {"top": 5}}, "top"),
    ],
)
def test_impossible_settings_are_refused_before_anything_runs(mining_recipe, second, message):
    with pytest.raises(RecipeError, match=message):
        mining_recipe(stages=(FIRST, second))


def test_data_with_labels_of_their_own_are_refused(mining_recipe, tmp_path):
    entry = {"name": "sts", "path": "package:medteb_mteb/MedTEBSTS/train.jsonl", "form": "scored-pairs",
             "columns": {"label": "score"}}  # fmt: skip
    with pytest.raises(RecipeError, match="'mine' needs triples; the data 'sts' are scored-pairs"):
        mining_recipe(data=[entry])


def test_the_plan_counts_the_texts_that_are_encoded_for_mining(mining_recipe):
    with_mining = plan(mining_recipe()).stages
    without = plan(mining_recipe(stages=(FIRST, {**SECOND, "mine": None}))).stages
    assert with_mining[0] == without[0]
    assert (with_mining[1].setup_flops, without[1].setup_flops) == (
        pytest.approx(with_mining[1].setup_flops),
        0,
    )
    assert with_mining[1].setup_flops > 0
    assert with_mining[1].flops_per_step == without[1].flops_per_step
