"""What every step has without writing it: a name, its inputs, the tests it keeps away from, a forecast."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from medteb_mteb.curation.pipeline.base import KEEP_AWAY_KEY, Input, PipelineStep, Texts
from medteb_mteb.curation.pipeline.settings import PipelineSettings
from medteb_mteb.curation.pipeline.work import StepOutcome, StepView, Volume, Workspace


class Shorten(PipelineStep):
    WRITES = "texts"
    source: Texts = Field(alias="in")
    others: Annotated[tuple[str, ...], Input(("pools", "file"))] = ()
    names: Annotated[str | None, Input(("file",))] = None
    length: int = 10

    def run(self, job):
        return StepOutcome()


class Train(Shorten):
    WRITES = "pairs"


class Test(Shorten):
    __test__ = False
    WRITES = "editions"


@pytest.mark.parametrize("name", [{}, {"name": ""}, {"name": None}])
def test_a_step_is_named_after_its_kind_unless_it_has_a_name(name):
    assert Shorten.model_validate({"step": "shorten", "in": "a", **name}).name == "shorten"
    assert Shorten.model_validate({"step": "shorten", "in": "a", "name": "甲-1_b"}).name == "甲-1_b"


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "x" * 61, "a\n"])
def test_a_name_that_is_no_folder_of_the_build_is_refused(name):
    with pytest.raises(ValidationError, match="name"):
        Shorten.model_validate({"step": "shorten", "in": "a", "name": name})


def test_inputs_are_the_marked_fields_by_their_key_in_the_file():
    step = Shorten.model_validate({"step": "shorten", "in": "a", "others": ["b", "c"], "length": 3})
    assert [(key, mark.kinds, value) for key, mark, value in step.inputs()] == [
        ("in", ("texts",), "a"),
        ("others", ("pools", "file"), "b"),
        ("others", ("pools", "file"), "c"),
    ]
    named = Shorten.model_validate({"step": "shorten", "in": "a", "names": "n.txt"})
    assert [(key, mark.texts) for key, mark, _ in named.inputs()] == [("in", True), ("names", False)]


def test_options_are_checked_and_do_not_change_later():
    with pytest.raises(ValidationError, match="lenght"):
        Shorten.model_validate({"step": "shorten", "in": "a", "lenght": 3})
    step = Shorten.model_validate({"step": "shorten", "in": "a"})
    with pytest.raises(ValidationError, match="frozen"):
        step.length = 3


def test_training_data_is_kept_away_from_each_test_once_and_an_edition_only_from_other_editions():
    paths = {
        KEEP_AWAY_KEY: ["build/sts", "build/assemble"],
        "against": ["held-out", "build/sts"],
        "in": ["a"],
    }
    training, edition = (kind.model_validate({"step": "x", "in": "a"}) for kind in (Train, Test))
    assert training.tests(paths) == ["build/sts", "build/assemble", "held-out"]
    # What an edition names under `against` is training data, which its test must not contain.
    assert edition.tests(paths) == ["build/sts", "build/assemble"]
    assert training.tests({"in": ["a"]}) == []


def test_texts_are_forecast_as_at_most_those_read_and_other_output_is_unknown(tmp_path):
    space = Workspace(PipelineSettings(), tmp_path, tmp_path / "build")
    read = Volume(7, 90, queries=3)
    view = StepView(space, tmp_path, {"in": ["a"]}, lambda key: {"in": [read]}[key], True, False)
    texts, training = (kind.model_validate({"step": "x", "in": "a"}) for kind in (Shorten, Train))
    assert texts.forecast_volume(view) == Volume(7, 90, exact=False)
    assert training.forecast_volume(view) is None
    assert texts.forecast_charges(view) == []
