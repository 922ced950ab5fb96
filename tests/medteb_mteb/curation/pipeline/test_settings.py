"""Settings that the steps of a pipeline share: their types are checked, and unknown ones are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from medteb_mteb.curation.pipeline.settings import PipelineSettings

LLM = {"name": "w", "model": "m", "base_url": "http://127.0.0.1:9/v1"}


def test_judges_and_the_llm_are_read_and_written_back_the_same():
    first, second = {**LLM, "name": "a"}, {**LLM, "name": "b", "variant": "2"}
    content = {"judges": {"judges": [first, second], "seed": 3}, "llm": LLM, "journal": "j.sqlite"}
    settings = PipelineSettings.model_validate(content)
    assert [judge.name for judge in settings.judges.judges] == ["a", "b"]
    assert (settings.judges.seed, settings.llm.model, settings.journal) == (3, "m", "j.sqlite")
    assert PipelineSettings.model_validate(settings.model_dump()) == settings


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"seed": 42}, "seed"),
        ({"out": None}, "out"),
        ({"already_anonymous": "perhaps"}, "already_anonymous"),
        ({"llm": {**LLM, "base_url": "127.0.0.1"}}, "llm.base_url"),
        ({"llm": {**LLM, "temprature": 1}}, "llm.temprature"),
        ({"judges": {"judges": []}}, "judges.judges"),
        ({"judges": {"judges": [LLM], "sed": 1}}, "judges.sed"),
        ({"store": 3}, "store"),
    ],
)
def test_a_setting_of_another_name_or_type_is_refused_at_its_place(content, place):
    with pytest.raises(ValidationError) as caught:
        PipelineSettings.model_validate(content)
    assert [".".join(map(str, error["loc"])) for error in caught.value.errors()] == [place]


def test_two_judges_that_cannot_be_told_apart_are_refused():
    for twin, message in ((LLM, "two judges are called 'w'"), ({**LLM, "name": "v"}, "are the same model")):
        with pytest.raises(ValidationError, match=message):
            PipelineSettings.model_validate({"judges": {"judges": [LLM, twin]}})
