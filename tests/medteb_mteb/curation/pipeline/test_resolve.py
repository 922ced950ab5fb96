"""Inputs of steps, from earlier steps or paths, and the places of models."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.base import KEEP_AWAY_KEY
from medteb_mteb.curation.pipeline.resolve import model_places, resolve
from medteb_mteb.curation.pipeline.schema import Pipeline

DEDUP = {"step": "dedup", "in": "documents.jsonl"}
POOL = {"step": "pool", "queries": "queries.jsonl", "documents": "documents.jsonl", "retrievers": ["bm25"]}


@pytest.fixture
def inputs(texts, tmp_path):
    """Paths relative to the base, by step and key: `inputs(step, step, ...)`."""

    def call(*steps, **settings):
        resolved = resolve(Pipeline(steps=steps, **settings), tmp_path)
        return {
            name: {key: [one.path.removeprefix(f"{tmp_path}/") for one in ones] for key, ones in keys.items()}
            for name, keys in resolved.items()
        }

    return call


def test_a_name_of_an_earlier_step_comes_before_a_path(inputs, tmp_path):
    (tmp_path / "dedup").mkdir()
    found = inputs(DEDUP, {"step": "dedup", "name": "again", "in": "dedup"})
    assert found == {"dedup": {"in": ["documents.jsonl"]}, "again": {"in": ["build/dedup"]}}
    (tmp_path / "later").mkdir()
    assert inputs({**DEDUP, "in": "later"}) == {"dedup": {"in": ["later"]}}


def test_a_path_inside_a_step_is_in_its_folder_and_may_be_of_any_kind(inputs):
    found = inputs(POOL, {**DEDUP, "in": "pool/train/corpus.jsonl"}, out="elsewhere")
    assert found["dedup"] == {"in": ["elsewhere/pool/train/corpus.jsonl"]}
    with pytest.raises(BuildError, match=r"'dedup', in: expected texts, but 'pool' \(pool\) writes pools"):
        inputs(POOL, {**DEDUP, "in": "pool"})


def test_a_step_reads_only_what_was_written_before(inputs):
    for name in ("dedup", "again", "again/records.jsonl"):
        with pytest.raises(BuildError, match=f"{name.partition('/')[0]!r} does not come before it"):
            inputs({**DEDUP, "in": name}, {**DEDUP, "name": "again"})


@pytest.mark.parametrize("path", ["", "gone.jsonl", "documents.jsonl/x", "x" * 300, "hub:"])
def test_a_path_that_is_not_there_is_named_with_the_steps(inputs, path):
    if path == "hub:":
        assert inputs({**DEDUP, "in": "hub:org/name"}) == {"dedup": {"in": ["hub:org/name"]}}
        return
    with pytest.raises(
        BuildError, match=rf"Step 'dedup', in: there is no step '{path}' and no .* Steps: dedup"
    ):
        inputs({**DEDUP, "in": path})


@pytest.mark.parametrize("path", ["~no-such-user/a", "a\0b"])
def test_what_cannot_be_a_path_is_refused(inputs, path):
    for steps, settings in (([{**DEDUP, "in": path}], {}), ([DEDUP], {"out": path})):
        with pytest.raises(BuildError, match="is not a path"):
            inputs(*steps, **settings)


def test_training_data_are_kept_away_from_the_tests_of_earlier_steps(inputs):
    sts = {"step": "sts", "dictionary": "documents.jsonl", "queries": "queries.jsonl", "edition": "e"}
    sts = {**sts, "licence": "mit", "test": 0.4}
    pairs = {"step": "pairs", "queries": ["queries.jsonl"]}
    found = inputs(pairs, sts, {**pairs, "name": "more"})
    assert KEEP_AWAY_KEY not in found["pairs"]
    assert found["more"][KEEP_AWAY_KEY] == ["build/sts"]
    assert found["sts"]["against"] == ["build/pairs"]


@pytest.fixture
def places(texts, tmp_path):
    """Places of the retrievers of a pool."""

    def call(*names):
        (step,) = Pipeline(steps=[{**POOL, "retrievers": names}]).steps
        found = model_places(step, tmp_path)
        return [found[name].removeprefix(f"{tmp_path}/") for name in names]

    return call


def test_a_model_is_a_folder_a_run_a_name_of_the_hub_or_bm25(places, tmp_path):
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "run.trec").touch()
    names = ["models/mine", "./models/mine", "run.trec", "BAAI/bge-m3", "bm25", "bm25:jieba"]
    assert places(*names) == ["models/mine", *names[:1], *names[2:]]


@pytest.mark.parametrize(
    "name",
    ["models/gone/x", "./gone", "../gone", "/gone/x", "gone", "gone.trec", "", "bm25:words", "x" * 300],
)
def test_a_missing_folder_is_not_looked_for_on_the_hub(places, name):
    with pytest.raises(BuildError, match=r"Step 'pool': there is no model folder .* is not a Hub name"):
        places(name)


def test_the_home_of_nobody_is_no_place_of_a_model(places):
    with pytest.raises(BuildError, match="'~no-such-user/m' is not a path"):
        places("~no-such-user/m")
