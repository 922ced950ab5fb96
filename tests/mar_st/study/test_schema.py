from __future__ import annotations

import pytest
import yaml

from mar_st.recipes.load import load_recipe, recipe_names
from mar_st.study import StudyError, load_study, study_names
from mar_st.study.schema import row_recipes


def test_every_row_and_seed_gets_its_recipe(study_folder, tmp_path):
    study = load_study(study_folder / "study.yaml")
    recipes = row_recipes(study, tmp_path / "recipes")
    assert {name: list(by_seed) for name, by_seed in recipes.items()} == {
        name: [1, 2] for name in ("full", "no-joint", "warmer")
    }
    assert [stage.name for stage in recipes["no-joint"][1].stages] == ["document-init", "align"]
    assert recipes["full"][2].seed == 2
    assert [recipes[name][1].stages[-1].temperature for name in ("full", "warmer")] == [0.1, 0.5]
    for row in study.rows:  # the files alone train the same models
        alone = load_recipe(tmp_path / "recipes" / f"{row.name}.yaml", ["seed=2"])
        assert alone == recipes[row.name][2]


def test_study_wide_changes_reach_the_rows_on_the_base(change, study_folder, tmp_path):
    other = yaml.safe_load((study_folder / "base.yaml").read_text(encoding="utf-8")) | {"name": "other"}
    (study_folder / "other.yaml").write_text(yaml.safe_dump(other, allow_unicode=True), encoding="utf-8")
    rows = [{"name": "full"}, {"name": "other", "recipe": "other.yaml"}]
    path = change(changes={"stages": {"align": {"epochs": 7}}}, rows=rows, published=[])
    recipes = row_recipes(load_study(path), tmp_path / "recipes")
    assert [recipes[name][1].stages[1].epochs for name in ("full", "other")] == [7, 2]


def test_seeds_may_be_a_number(change):
    assert load_study(change(seeds=4)).seeds == (42, 43, 44, 45)


def test_a_study_can_be_narrowed_to_rows_and_seeds(study_folder):
    study = load_study(study_folder / "study.yaml")
    part = study.narrowed(["warmer"], 1)
    assert ([row.name for row in part.rows], part.seeds) == (["full", "warmer"], (1,))
    assert part.published == ()  # one number is no order
    assert study.narrowed() == study
    with pytest.raises(StudyError, match="no row 'wamer'; it has full, no-joint, warmer"):
        study.narrowed(["wamer"])
    with pytest.raises(StudyError, match="has 2 seeds; got 3"):
        study.narrowed(None, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rwos": []}, "rwos: Extra inputs"),
        ({"full": "fool"}, "full is 'fool', which is not a row"),
        ({"seeds": [1, 1]}, "repeat"),
        ({"seeds": []}, "seeds"),
        ({"permutations": 9999}, "greater than or equal to 10000"),
        ({"base": None}, "no 'base' recipe"),
        ({"rows": [{"name": "full"}, {"name": "full"}]}, "two rows are called 'full'"),
        ({"rows": [{"name": "full", "set": {"seed": 3}}]}, "'seed' is set by the study"),
        ({"tasks": [{"name": "a", "path": "x"}, {"name": "a", "path": "y"}]}, "two tasks are called 'a'"),
        ({"tasks": [{"name": "average", "path": "x"}]}, "a task is called 'average'"),
        (
            {"published": [{"name": "p", "source": "s", "scores": {"full": 1, "gone": 2}}]},
            "'gone', which is not a row",
        ),
        (
            {"published": [{"name": "p", "source": "s", "task": "x", "scores": {"full": 1, "no-joint": 2}}]},
            "names the task 'x'",
        ),
    ],
)
def test_impossible_studies_are_refused(change, settings, message):
    with pytest.raises(StudyError, match=message):
        load_study(change(**settings))


def test_unknown_studies_name_the_known_ones(tmp_path):
    with pytest.raises(StudyError, match="Did you mean 'mini'"):
        load_study("mimi")
    broken = tmp_path / "broken.yaml"
    broken.write_text("rows: [", encoding="utf-8")
    with pytest.raises(StudyError, match="is not valid YAML"):
        load_study(broken)
    broken.write_text("- 1", encoding="utf-8")
    with pytest.raises(StudyError, match="should hold a mapping"):
        load_study(broken)


@pytest.mark.thorough
def test_shipped_studies_have_possible_recipes(tmp_path):
    assert "mini" in study_names()
    for name in study_names():
        study = load_study(name)
        recipes = row_recipes(study, tmp_path / name)
        assert recipes[study.full][study.seeds[0]].asymmetric
    assert not [name for name in recipe_names() if "studies" in name]


def test_a_setting_of_null_in_place_of_a_default_stays_in_the_file_of_a_row(tmp_path):
    study = {
        "name": "mined",
        "base": "mar-mini",
        "full": "full",
        "seeds": 1,
        "rows": [
            {
                "name": "full",
                "set": {
                    "stages.document-init.negatives": 1,
                    "stages.document-init.mine": {"near_duplicate": None},
                },
            }
        ],
        "tasks": [{"name": "sts", "path": "MedTEBSTS"}],
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    recipes = row_recipes(load_study(tmp_path / "study.yaml"), tmp_path / "recipes")
    assert load_recipe(tmp_path / "recipes" / "full.yaml") == recipes["full"][42]
