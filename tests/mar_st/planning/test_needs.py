"""The result of a plan as JSON."""

from __future__ import annotations

import json

import pytest

from mar_st.planning.needs import Plan, StagePlan
from mar_st.planning.plan import plan

pytestmark = pytest.mark.usefixtures("no_dry_runs")


def test_a_plan_is_what_its_json_says(recipe):
    planned = plan(recipe)
    content = json.loads(json.dumps(planned.to_json()))
    stages = [StagePlan(**stage) for stage in content.pop("stages")]
    assert Plan(**content, stages=stages) == planned
    assert [stage.name for stage in stages] == [stage.name for stage in recipe.stages]


def test_json_that_is_changed_leaves_the_plan_as_it_was(recipe):
    planned = plan(recipe)
    content = planned.to_json()
    content["stages"][0]["memory"]["peak"] = -1
    content["stages"][0]["notes"].append("changed")
    content["stages"].pop()
    assert planned.to_json() == plan(recipe).to_json() != content
