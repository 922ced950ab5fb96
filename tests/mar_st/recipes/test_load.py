from __future__ import annotations

import pytest
import yaml

from mar_st.errors import MarError
from mar_st.recipes.load import load_recipe, recipe_names


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_are_valid(name):
    recipe = load_recipe(name)
    assert recipe.name == name.rpartition("/")[2]
    assert recipe.description
    assert "\n" not in recipe.description


def test_names_with_dots_and_in_folders_are_found():
    names = recipe_names()
    assert {"mar-0.3b-4b", "mar-0.3b-8b", "bmretriever-410m"} <= set(names)
    assert "ablations/no-mse" in names
    # Models first, then the stages that train them.
    assert names == sorted(names, key=lambda name: (name.count("/"), name))
    with pytest.raises(MarError, match="Did you mean 'ablations/no-mse'"):
        load_recipe("ablations/no-mze")


#: Tables 19 and 20 of the paper, and the released scripts where it is silent (temperatures).
PUBLISHED = {
    "retromae": {"learning_rate": 2e-4, "warmup_ratio": 0.0, "batch_size": 384, "epochs": 3.0},
    "unsupervised": {"learning_rate": 1e-4, "warmup_ratio": 0.05, "batch_size": 19200, "epochs": 3.0,
                     "learnable_temperature": True},
    "query-init": {"learning_rate": 1e-4, "warmup_ratio": 0.05, "batch_size": 640, "epochs": 1.0},
    "document-init": {"learning_rate": 1e-4, "batch_size": 640, "epochs": 1.0, "lora_r": 32,
                      "lora_alpha": 64},
    "align": {"learning_rate": 1e-4, "batch_size": 2560, "epochs": 1.0, "temperature": 0.1,
              "contrastive_weight": 1.0, "mse_weight": 1.0},
    "joint": {"learning_rate": 1e-4, "batch_size": 640, "epochs": 1.0, "temperature": 0.02, "lora_r": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", ["mar-0.3b-4b", "mar-0.3b-8b"])
def test_mar_has_the_published_hyperparameters(name):
    recipe = load_recipe(name)
    assert [stage.name for stage in recipe.stages] == list(PUBLISHED)
    for stage in recipe.stages:
        values = PUBLISHED[stage.name]
        assert {key: getattr(stage, key) for key in values} == values
        assert stage.schedule == "linear"
        assert not getattr(stage, "dims", ()) or stage.name == "document-init"
    # Group size 8: one positive and seven hard negatives.
    assert {entry.negatives for entry in recipe.data_of(recipe.stages[-1])} == {7}
    assert recipe.dim == 768
    assert recipe.renormalise


@pytest.mark.parametrize(
    ("name", "source", "batch", "rates", "rows"),
    [
        ("410m", "EleutherAI/pythia-410m", 256, (5e-5, 5e-5), 10_000_000),
        ("1b", "EleutherAI/pythia-1b", 256, (5e-5, 5e-5), 10_000_000),
        ("2b", "google/gemma-2b", 128, (4e-5, 2e-5), 10_000_000),
        ("7b", "BioMistral/BioMistral-7B", 64, (2e-5, 1e-5), 1_000_000),
    ],
)
def test_bmretriever_has_the_published_hyperparameters(name, source, batch, rates, rows):
    recipe = load_recipe(f"bmretriever-{name}")
    assert recipe.document.source == source
    assert recipe.query is None
    assert not recipe.normalise
    assert recipe.data[0].expected_rows == rows
    assert tuple(stage.learning_rate for stage in recipe.stages) == rates
    assert [stage.epochs for stage in recipe.stages] == [2.0, 1.0]
    for stage, examples in zip(recipe.stages, (2 * rows, 1_400_000), strict=True):
        assert (stage.batch_size, stage.temperature, stage.lora_r, stage.lora_alpha) == (batch, 1.0, 16, 32)
        # 100 warm-up steps.
        assert stage.warmup_ratio * examples / batch == pytest.approx(100, rel=0.02)


def test_ablations_change_only_what_their_name_says():
    full = load_recipe("mar-0.3b-4b")

    def stages(name):
        return {stage.name: stage for stage in load_recipe(f"ablations/{name}").stages}

    rest = {stage.name: stage for stage in full.stages}
    assert stages("no-mse") == rest | {"align": rest["align"].model_copy(update={"mse_weight": 0.0})}
    for name, gone in (
        ("no-query-init", {"retromae", "unsupervised", "query-init"}),
        ("no-document-init", {"document-init"}),
        ("no-align", {"align"}),
        ("no-joint", {"joint"}),
    ):
        assert stages(name) == {key: stage for key, stage in rest.items() if key not in gone}
    assert stages("align-on-finetune-data")["align"].data == rest["joint"].data
    assert not load_recipe("ablations/released-scoring").renormalise


def test_overrides_change_fields_and_unknown_ones_are_refused(load, content):
    recipe = load(content, ["stages.align.epochs=9", "seed=7", "data.sts.negatives=3"])
    assert next(s.epochs for s in recipe.stages if s.name == "align") == 9
    assert (recipe.seed, recipe.data[1].negatives) == (7, 3)
    for key in ("stages.alinge.epochs", "stages.0.epochs", "stages.align.epoch"):
        with pytest.raises(MarError, match=r"alinge|'0'|epoch"):
            load(content, [f"{key}=1"])
    with pytest.raises(MarError, match="KEY=VALUE"):
        load(content, ["seed"])


def test_recipes_of_published_methods_have_the_published_settings():
    def stage(recipe, name):
        return next(stage for stage in load_recipe(recipe).stages if stage.name == name)

    kale = stage("kale", "align")
    assert (kale.vectors, kale.text_weights, kale.kl_weight, kale.kl_temperature) == ("raw", (0.6, 0.2), 1, 1)
    assert stage("scalingnote", "align").vectors == "raw"
    assert stage("wang-lyu", "align").vectors == "normalised"
    assert stage("distill", "distill").kl_scope == "group"
    assert stage("mar-0.3b-4b", "align").teacher_prompt == "query"
    full, lora = (stage(name, "joint") for name in ("hotelmatch", "hotelmatch-lora"))
    assert (full.lora_r, full.learning_rate, full.document_learning_rate) == (None, 5e-4, 5e-6)
    assert (lora.lora_r, lora.learning_rate) == (32, 5e-4)
    assert lora.document_learning_rate > 5 * full.document_learning_rate
    # Reported figures are of these variants.
    assert stage("mar-mini", "align").teacher_prompt == "document"


@pytest.mark.parametrize("text", ["name: [", "a: &a {b: 1}\nc: {<<: [*a, *a]}"])
def test_yaml_that_is_broken_or_merges_is_refused(tmp_path, text):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(MarError, match="not valid YAML"):
        load_recipe(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        ("mar-mini", "{query-init: max_steps}", "stages.query-init should be a mapping"),
        ("base.yaml", "{align: {epochs: 2}}", "stages of the recipe that is extended should be mappings"),
    ],
)
def test_changes_that_do_not_fit_the_extended_recipe_are_refused(tmp_path, base, changes, message):
    (tmp_path / "base.yaml").write_text("name: base\nstages: [3, {stage: align}]\n", encoding="utf-8")
    path = tmp_path / "recipe.yaml"
    path.write_text(f"extends: {base}\nname: mine\nstages: {changes}\n", encoding="utf-8")
    with pytest.raises(MarError, match=message):
        load_recipe(path)


def test_extends_merges_mappings_and_replaces_the_rest(load, tmp_path, content):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    child = {
        "extends": "base.yaml",
        "name": "child",
        "query": {"max_length": 64},
        "stages": content["stages"][:1],
    }
    recipe = load(child)
    assert recipe.name == "child"
    assert recipe.query.max_length == 64
    assert recipe.query.config == content["query"]["config"]
    assert len(recipe.stages) == 1
    assert load({**child, "document": None}).asymmetric is False


def test_a_mapping_changes_named_entries_of_a_list(load, tmp_path, content):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    child = {"extends": "base.yaml", "stages": {"query-init": None, "align": {"epochs": 7}}}
    recipe = load(child)
    assert [stage.name for stage in recipe.stages] == ["document-init", "document-hard", "align", "joint"]
    assert recipe.stages[2].epochs == 7
    assert recipe.stages[2].learning_rate == content["stages"][3]["learning_rate"]
    child["stages"] = {"alin": {"epochs": 7}}
    with pytest.raises(MarError, match="stages has no entry 'alin' to change; it has query-init"):
        load(child)


def test_an_added_stage_follows_those_that_it_builds_on(load, tmp_path, content):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    more = {"stage": "contrastive", "name": "document-harder", "side": "document", "batch_size": 8,
            "learning_rate": 1.0e-4, "temperature": 0.1}  # fmt: skip
    recipe = load({"extends": "base.yaml", "stages": {"document-harder": more, "query-init": None}})
    names = ["document-init", "document-hard", "document-harder", "align", "joint"]
    assert [stage.name for stage in recipe.stages] == names


def test_extending_in_a_circle_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(MarError, match="extends itself"):
        load_recipe(tmp_path / "a.yaml")


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + ".yaml", "a/" * 3000])
def test_a_recipe_name_too_long_for_a_file_is_refused(name):
    with pytest.raises(MarError, match=r"No '[xa]") as caught:
        load_recipe(name)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("base", [3, ["mar-mini"], {"name": "mar-mini"}])
def test_a_recipe_extends_one_name(load, base):
    with pytest.raises(MarError, match="extends should be the name or the file of one recipe"):
        load({"extends": base, "name": "mine"})


def test_a_setting_that_is_not_yaml_is_named():
    with pytest.raises(MarError, match=r"--set query\.source=\[: '\[' is not valid YAML"):
        load_recipe("mar-mini", ["query.source=["])
