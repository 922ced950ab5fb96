"""Rows, steps and lengths of the texts that the stages of a small recipe take."""

from __future__ import annotations

import pytest

from mar_st.planning.backbones import side_shapes
from mar_st.planning.plan import plan
from mar_st.planning.workload import Workload
from mar_st.recipes.load import changed

pytestmark = pytest.mark.usefixtures("no_dry_runs")


@pytest.fixture
def groups(recipe):
    """Groups of rows of a stage by its name, after some changes of the recipe, and the steps they make."""

    def call(name, *overrides, world=1):
        made = changed(recipe, list(overrides))
        work = Workload(made, side_shapes(made.query, made.document), world)
        (stage,) = [stage for stage in made.stages if stage.name == name]
        found = work.groups(stage, made.data_of(stage))
        return found, work.steps(stage, found)[0]

    return call


def test_one_positive_per_epoch_counts_one_row_per_query(recipe):
    again = changed(recipe, ["data.one.positives=one-per-epoch"])
    assert [stage.steps for stage in plan(again).stages] == [stage.steps for stage in plan(recipe).stages]


def test_tokens_that_are_hidden_are_not_counted(recipe):
    def tokens(share):
        stages = [stage.model_copy(update={"token_dropout": share}) for stage in recipe.stages]
        return [stage.tokens_per_step for stage in plan(recipe.model_copy(update={"stages": stages})).stages]

    hidden = [name.stage for name in recipe.stages if hasattr(name, "token_dropout")]
    assert len(hidden) >= 3
    for stage, whole, part in zip(recipe.stages, tokens(0.0), tokens(0.25), strict=True):
        assert part == pytest.approx(whole * (0.75 if hasattr(stage, "token_dropout") else 1))


def test_each_text_of_an_alignment_is_a_row(groups):
    (queries, documents), steps = groups("align")
    assert (queries.rows, documents.rows) == (70, 70 * 3)  # two positives and a negative
    assert (queries.queries, documents.queries) == (True, False)
    assert steps == 70 // 8 + 210 // 8
    assert [len(group.columns) for group in (queries, documents)] == [1, 1]
    (only,), steps = groups("align", "stages.align.texts=queries")
    assert (only, steps) == (queries, 70 // 8)
    weighted, _ = groups("align", "data.one.weight=0.5")
    assert [group.rows for group in weighted] == [35, 105]


def test_mixed_batches_lose_only_the_rows_of_the_last_one(groups):
    assert groups("query-init")[1] == 140 // 8 + 70 // 8
    assert groups("query-init", "stages.query-init.batches=mixed")[1] == (140 + 70) // 8
    assert groups("query-init", "stages.query-init.epochs=2")[1] == 2 * (140 // 8 + 70 // 8)
    assert groups("query-init", "stages.query-init.max_steps=5")[1] == 5


def test_a_pair_is_a_query_beside_its_positive_and_its_negatives(groups):
    (first, _), _ = groups("joint", "stages.joint.freeze=null", "stages.joint.negatives=3")
    assert [(column.side, column.rows) for column in first.columns] == [("query", 8), ("document", 8 * 4)]
    (frozen, _), _ = groups("joint")
    assert [column.read for column in frozen.columns] == [False, True]
    (own, _), _ = groups("query-init", "data.triples.negatives=0")
    assert [(column.side, column.rows) for column in own.columns] == [("query", 8), ("query", 8)]


def test_texts_are_padded_to_the_longest_of_those_beside_them(groups):
    def padding(**options):
        (first, _), _ = groups("query-init", *options.pop("changes", ()), **options)
        return [column.length - column.mean for column in first.columns]

    alone = padding(world=8)
    assert alone == pytest.approx([0, 0], abs=1)  # one text per device
    assert all(more > less for more, less in zip(padding(), alone, strict=True))
    sorted_ones = padding(changes=["stages.query-init.length_groups=16"])
    assert all(less < more for less, more in zip(sorted_ones, padding(), strict=True))


def test_pre_training_reads_every_text_without_a_prompt(recipe):
    def lengths(prompt):
        content = recipe.model_dump() | {"prompts": {"query": prompt}}
        stage = {"stage": "retromae", "name": "pre", "batch_size": 8, "learning_rate": 1e-3}
        content["stages"] = [stage, *content["stages"]]
        made = type(recipe).model_validate(content)
        work = Workload(made, side_shapes(made.query, made.document), 1)
        found = [work.groups(stage, made.data_of(stage)) for stage in made.stages[:2]]
        assert found[0][0].rows == 70 + 210
        return [one[0].columns[0].mean for one in found]

    (bare, short), (still_bare, long) = lengths(""), lengths("问")
    assert still_bare == bare
    assert long == pytest.approx(short + 1)
