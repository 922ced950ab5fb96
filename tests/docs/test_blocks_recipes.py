"""Code blocks in YAML that describe recipes, studies, pipelines and judges: each is loaded."""

from __future__ import annotations

import pytest
import yaml

from mar_st.recipes.load import load_recipe
from mar_st.study.schema import load_study, row_recipes
from medteb_mteb.curation.judge import load_judges
from medteb_mteb.curation.pipeline.schema import load_pipeline
from tests.docs.blocks import BLOCKS, PARTS

WHOLE = yaml.safe_load(BLOCKS["how-to/train-on-your-data.md:1"].code)
#: A stage for recipes of which a page shows the data alone.
ALIGN = {"stage": "align", "name": "align", "batch_size": 8, "learning_rate": 1.0e-4}


def recipe(tmp_path, content):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return load_recipe(path)


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_recipes_load(name, tmp_path):
    part = yaml.safe_load(BLOCKS[name].code)
    field, count = PARTS[name]
    stages = {"stages": [ALIGN]} if "data" in part and "stages" not in part else {}
    assert len(getattr(recipe(tmp_path, WHOLE | stages | part), field)) == count


def test_backbones_of_recipes_load(tmp_path):
    document = yaml.safe_load(BLOCKS["reference/recipes.md:4"].code)
    query = yaml.safe_load(BLOCKS["reference/recipes.md:5"].code)
    read = recipe(tmp_path, WHOLE | document | query)
    assert read.document.source == "Qwen/Qwen3-Embedding-4B"
    assert read.query.vocabulary.keep == 36_000


def test_a_recipe_that_extends_another_changes_what_it_names(tmp_path):
    read = recipe(tmp_path, yaml.safe_load(BLOCKS["reference/recipes.md:1"].code))
    assert read.name == "my-mar"
    assert {entry.name for entry in read.data}.isdisjoint({"pretrain", "unsupervised"})
    assert {stage.name for stage in read.stages}.isdisjoint({"retromae", "unsupervised"})
    assert next(stage for stage in read.stages if stage.name == "align").epochs == 2


def test_the_study_of_the_page_loads(tmp_path):
    for name in ("my-recipe", "my-distill"):
        content = WHOLE if name == "my-recipe" else WHOLE | {"name": "my-distill"}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    path = tmp_path / "study.yaml"
    path.write_text(BLOCKS["how-to/ablate.md:1"].code, encoding="utf-8")
    study = load_study(path)
    recipes = row_recipes(study, tmp_path / "out")
    assert list(recipes) == ["full", "no-align", "warmer", "distill"]
    warm = next(iter(recipes["warmer"].values()))
    assert next(stage for stage in warm.stages if stage.name == "joint").temperature == 0.05


def test_a_step_with_sources_loads(tmp_path):
    path = tmp_path / "build.yaml"
    path.write_text(f"steps:\n{BLOCKS['how-to/build.md:2'].code}", encoding="utf-8")
    (step,) = load_pipeline(path).steps
    assert [source.licence for source in step.sources] == ["apache-2.0"]


def test_a_learned_judge_loads(tmp_path):
    path = tmp_path / "judges.yaml"
    path.write_text(BLOCKS["how-to/judge.md:4"].code, encoding="utf-8")
    (judge,) = load_judges(path).judges
    assert judge.cross_encoder == "runs/judge"
