"""YAML that may come from anyone."""

from __future__ import annotations

import pytest

from mar_st.files.yaml_text import YamlError, parse_yaml
from mar_st.recipes.load import RecipeError, load_recipe
from mar_st.study.schema import StudyError, load_study

REFUSED = {
    "deep": "a: " + "[" * 5000 + "]" * 5000,
    "a month": "a: 2024-13-01",
    "digits": "a: " + "9" * 6000,
    "code": "a: !!python/object/apply:os.system [exit]",
    "a name": "a: !!python/name:os.system",
    "a tag": "!<tag:x> {}",
    "a list as key": "? [1, 2]\n: 3",
    "twice": "a: 1\na: 2",
    "two documents": "a: 1\n---\nb: 2",
    "a control character": "a: \x00",
    "open": "a: [1",
    "half a pair": r'a: ["x\ud83d"]',
    "the wrong order": r'"\ude00\ud83d": 1',
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFUSED)
def test_refused_yaml_is_explained_in_one_line(name, tmp_path):
    with pytest.raises(YamlError) as raised:
        parse_yaml(REFUSED[name])
    assert "\n" not in str(raised.value)
    path = tmp_path / "x.yaml"
    path.write_text(REFUSED[name])
    for load, error in ((load_recipe, RecipeError), (load_study, StudyError)):
        with pytest.raises(error, match="is not valid YAML"):
            load(path)


def test_values_anchors_and_merges_are_read():
    shared = parse_yaml("a: &x {b: [1, 2.5, yes, null]}\nc: *x\nd:\n  <<: *x\n  e: 1\n")
    assert shared == {
        "a": {"b": [1, 2.5, True, None]},
        "c": {"b": [1, 2.5, True, None]},
        "d": {"b": [1, 2.5, True, None], "e": 1},
    }


def test_an_escaped_surrogate_pair_is_one_character():
    assert parse_yaml(r'"\ud83d\ude00": ["\ud83d\ude00!"]') == {"😀": ["😀!"]}
