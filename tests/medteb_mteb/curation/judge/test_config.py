"""Judges from a YAML file: what is read, what is refused, and when two of them are the same."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import Judge, Judges, LearnedJudge, load_judges

ENTRY = {"name": "a", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
LEARNED = {"name": "a", "cross_encoder": "folder"}


def test_llms_and_cross_encoders_are_told_apart_by_their_settings(tmp_path):
    file = tmp_path / "judges.yaml"
    file.write_text(
        "judges:\n  - {name: 甲, model: qwen, base_url: http://localhost:8000/v1/, passages: 3}\n"
        "  - {name: 乙, cross_encoder: folder}\nseed: 7\n",
        encoding="utf-8",
    )
    judges = load_judges(file)
    assert [type(judge) for judge in judges.judges] == [Judge, LearnedJudge]
    assert [judge.name for judge in judges.judges] == ["甲", "乙"]
    assert (judges.judges[0].passages, judges.judges[0].base_url) == (3, "http://localhost:8000/v1")
    assert (judges.seed, judges.judges[1].key()) == (7, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("judges: []", "judges"),
        ("judges: [{name: a}]", r"judges.0.LLM.model: Field required"),
        ("judges: [{name: a, model: m, base_url: nowhere}]", r"no address; for instance [^ ;]+$"),
        ("judges: [{name: a, model: m, base_url: 'http://h', tmperature: 1}]", "judges.0.LLM.tmperature"),
        (
            "judges: [{name: a, model: m, base_url: 'http://h', extra: {since: 2024-01-01}}]",
            "dates in quotes",
        ),
        ('judges: [{name: a, model: m, base_url: "http://h", variant: "\\ud800"}]', "half of a surrogate"),
        ("judges: [{name: a, cross_encoder: f, model: m}]", "judges.0.cross-encoder.model"),
        ("judges: [qwen]", "judges.0.LLM"),
        ("judges: [null]", "judges.0.LLM"),
        ("- a", "must be a mapping"),
        ("judges: [", "is not valid YAML"),
        ("", "must be a mapping"),
    ],
)
def test_an_invalid_file_of_judges_is_refused(tmp_path, text, message):
    file = tmp_path / "judges.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        load_judges(file)
    with pytest.raises(BuildError, match="cannot be read"):
        load_judges(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "settings",
    [
        {"control_rate": 1.5},
        {"control_rate": float("nan")},
        {"controls": []},
        {"controls": ["too short"]},
        {"echoes": ["without the query"]},
        {"checks": []},
        {"judges": [{**ENTRY, "passages": 0}]},
        {"judges": [{**ENTRY, "passages": 201}]},
        {"judges": [{**ENTRY, "max_failed": float("nan")}]},
        {"judges": [{**ENTRY, "keep_answers": "all"}]},
        {"judges": [{**ENTRY, "prompt_tokens": "many"}]},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    Judges.model_validate({"judges": [ENTRY]})
    with pytest.raises(ValueError, match=next(iter(settings))):
        Judges.model_validate({"judges": [ENTRY]} | settings)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({}, "two judges are called 'a'"),
        ({"name": "b"}, "same model with the same settings"),
        ({"name": "b", "nonsense": 1}, "nonsense"),
        ({"name": "b", "model": "n", "budget": 3}, "price_in"),
        ({"name": "b", "model": "n", "base_url": "https://me:pw@host/v1"}, "leave user"),
        ({"name": "b", "model": "n", "extra": {"messages": []}}, "set by the step itself"),
    ],
)
def test_judges_need_different_names_and_settings(other, message):
    with pytest.raises(ValueError, match=message):
        Judges.model_validate({"judges": [ENTRY, ENTRY | other]})


@pytest.mark.parametrize(
    "other", [{"variant": "8bit"}, {"temperature": 0.5}, {"tags": False}, {"extra": {"a": 1}}]
)
def test_a_setting_that_changes_answers_makes_another_judge(other):
    config = Judges.model_validate({"judges": [ENTRY, ENTRY | other | {"name": "b"}]})
    assert config.judges[0].description() != config.judges[1].description()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # These change no answer: both judges would share every grade, and always agree.
        (ENTRY, ENTRY | {"base_url": "http://127.0.0.1:2/v1", "passages": 3, "price_in": 1}),
        (ENTRY | {"extra": {"top_p": 0.9, "seed": 1}}, ENTRY | {"extra": {"seed": 1, "top_p": 0.9}}),
        (ENTRY | {"extra": {"a": {"b": 1, "c": 2}}}, ENTRY | {"extra": {"a": {"c": 2, "b": 1}}}),
        (LEARNED, LEARNED | {"batch_size": 1}),
        (LEARNED, LEARNED | {"cross_encoder": "./other/../folder/"}),
    ],
)
def test_two_judges_that_would_share_their_grades_are_refused(one, other):
    with pytest.raises(ValueError, match="judges 'a' and 'b' are the same model with the same settings"):
        Judges.model_validate({"judges": [one, other | {"name": "b"}]})
