from __future__ import annotations

import pytest
import yaml

from mar_st.recipes.load import load_recipe
from mar_st.runs.lineage import stage_digests

RANDOM = {"model_type": "gte", "hidden_size": 32}
TOKENIZER = {"vocab_size": 100}
CONTENT = {"triples": "t", "texts": "u"}


@pytest.fixture
def recipe_file(tmp_path):
    content = {
        "name": "lineage",
        "description": "for tests",
        "dim": 32,
        "prompts": {"query": "检索："},
        "query": {"config": RANDOM, "tokenizer": TOKENIZER},
        "document": {"config": {**RANDOM, "hidden_size": 64}, "tokenizer": TOKENIZER},
        "data": [
            {"name": "triples", "path": "triples.jsonl"},
            {"name": "texts", "path": "texts.jsonl", "form": "texts", "role": "query"},
        ],
        "stages": [
            {"stage": "retromae", "name": "pretrain", "batch_size": 8, "learning_rate": 1e-3,
             "data": ["texts"]},
            {"stage": "contrastive", "name": "query-init", "side": "query", "batch_size": 8,
             "learning_rate": 1e-3, "temperature": 0.1},
            {"stage": "contrastive", "name": "document-init", "side": "document", "batch_size": 8,
             "learning_rate": 1e-3, "temperature": 0.1},
            {"stage": "align", "name": "align", "batch_size": 8, "learning_rate": 1e-3},
            {"stage": "joint", "name": "joint", "batch_size": 8, "learning_rate": 1e-3, "temperature": 0.1},
        ],
    }  # fmt: skip
    path = tmp_path / "base.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return path


@pytest.fixture
def changed(recipe_file):
    """Names of the stages whose digest changes with some settings, or with the content of the data."""

    def call(*overrides, content=CONTENT, extends=None):
        path = recipe_file
        if extends is not None:
            path = recipe_file.with_name("other.yaml")
            path.write_text(yaml.safe_dump({"extends": "base.yaml", **extends}), encoding="utf-8")
        base = dict(zip([s.name for s in load_recipe(recipe_file).stages],
                        stage_digests(load_recipe(recipe_file), CONTENT), strict=True))  # fmt: skip
        other = load_recipe(path, list(overrides))
        digests = stage_digests(other, content)
        return [stage.name for stage, digest in zip(other.stages, digests, strict=True)
                if digest != base.get(stage.name)]  # fmt: skip

    return call


QUERY, DOCUMENT = ["pretrain", "query-init"], ["document-init"]
BOTH = ["align", "joint"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], []),
        # what a stage does, and what follows from it
        (["stages.pretrain.encoder_mask=0.2"], [*QUERY, *BOTH]),
        (["stages.query-init.epochs=2"], ["query-init", *BOTH]),
        (["stages.document-init.dims=[32,64]"], [*DOCUMENT, *BOTH]),
        (["stages.align.mse_weight=0.5"], BOTH),
        (["stages.joint.freeze=document"], ["joint"]),
        (["query.max_length=64"], [*QUERY, *BOTH]),
        (["document.config.hidden_size=128"], [*DOCUMENT, *BOTH]),
        (["query.tokenizer_data=[triples]"], [*QUERY, *BOTH]),
        # what belongs to the shared space alone
        (["renormalise=false"], BOTH),
        (["query.config.hidden_size=16", "dim=16"], [*QUERY, *BOTH]),
        # what belongs to everything
        (["seed=7"], [*QUERY, *DOCUMENT, *BOTH]),
        (["precision=bf16"], [*QUERY, *DOCUMENT, *BOTH]),
        (["prompts.query=x"], [*QUERY, *DOCUMENT, *BOTH]),
        # what trains nothing
        (["name=other"], []),
        (["description=other"], []),
        (["storage_dtype=float16"], []),
        (["data.triples.path=elsewhere.jsonl"], []),
        (["data.triples.expected_rows=7"], []),
        (["evaluation={path: somewhere}"], []),
        # what decides which weights a stage leaves
        (["evaluation={path: 'package:medteb_mteb/MedTEBSTS', keep: best}"], [*QUERY, *DOCUMENT, *BOTH]),
        # how an entry is used
        (["data.triples.weight=2"], ["query-init", *DOCUMENT, *BOTH]),
        (["data.triples.negatives=3"], ["query-init", *DOCUMENT, *BOTH]),
        (["data.triples.positives=one"], ["query-init", *DOCUMENT, *BOTH]),
        (["stages.document-init.negatives=0"], [*DOCUMENT, *BOTH]),
        (["stages.document-init.negatives=1"], []),  # as the data say
    ],
)
def test_a_change_reaches_the_stages_that_depend_on_it(changed, overrides, expected):
    assert changed(*overrides) == expected


def test_changed_content_reaches_the_stages_that_use_it(changed):
    # Both tokenizers are trained on all texts, unless they name their data.
    assert changed(content={**CONTENT, "texts": "v"}) == [*QUERY, *DOCUMENT, *BOTH]
    named = ["query.tokenizer_data=[triples]", "document.tokenizer_data=[triples]"]
    before = changed(*named)
    assert before == [*QUERY, *DOCUMENT, *BOTH]
    assert changed("stages.align.data=[triples]") == BOTH


def test_stages_without_a_place_in_another_recipe_are_shared(changed):
    assert changed(extends={"stages": {"joint": None}}) == []
    assert changed(extends={"stages": {"align": None}}) == ["joint"]
    assert changed(extends={"stages": {"pretrain": None, "query-init": None}}) == BOTH


def test_the_document_encoder_is_the_same_before_and_after_alignment(recipe_file):
    """`distill` with the document side as teacher: alignment in between changes nothing about it."""
    content = yaml.safe_load(recipe_file.read_text(encoding="utf-8"))
    distill = {"stage": "distill", "name": "distill", "batch_size": 8, "learning_rate": 1e-3,
               "temperature": 0.1, "side": "query", "teacher": "document"}  # fmt: skip
    digests = []
    for stages in ([*content["stages"][:3], distill], [*content["stages"][:4], distill]):
        path = recipe_file.with_name("distill.yaml")
        path.write_text(yaml.safe_dump({**content, "stages": stages}, allow_unicode=True), encoding="utf-8")
        digests.append(stage_digests(load_recipe(path), CONTENT))
    assert digests[0][:3] == digests[1][:3]
    assert digests[0][-1] != digests[1][-1]  # its student is another one


def test_the_projection_comes_with_the_first_joining_stage(changed):
    assert changed("query.projection=48", "dim=48") == BOTH


def test_layers_of_the_document_follow_its_training(changed, recipe_file):
    layers = {"config": None, "tokenizer": None, "layers_of_document": [0]}
    kale = {"dim": 64, "query": layers, "stages": {"pretrain": None, "query-init": None, "joint": None}}
    assert changed(extends=kale) == ["align"]
    digests = []
    for epochs in (1, 2):
        path = recipe_file.with_name("kale.yaml")
        stages = {**kale["stages"], "document-init": {"epochs": epochs}}
        path.write_text(yaml.safe_dump({"extends": "base.yaml", **kale, "stages": stages}), encoding="utf-8")
        digests.append(stage_digests(load_recipe(path), CONTENT)[-1])
    assert digests[0] != digests[1]
