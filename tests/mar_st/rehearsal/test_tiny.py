from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from transformers import AutoConfig, AutoModel

from mar_st.data import locate, read_source
from mar_st.planning.backbones import known_backbones, shape_of, side_shapes
from mar_st.recipes.load import load_recipe, recipe_names
from mar_st.rehearsal.tiny import MAX_LENGTH, TinyError, shrink, small_config, write_evaluation
from mar_st.stages.columns import read_columns


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_shrinks_and_keeps_its_structure(name):
    recipe = load_recipe(name)
    tiny = shrink(recipe)
    assert [(stage.name, stage.stage) for stage in tiny.stages] == [(s.name, s.stage) for s in recipe.stages]
    assert [entry.name for entry in tiny.data] == [entry.name for entry in recipe.data]
    for entry in tiny.data:
        assert locate(entry.path).exists()
    for before, after in zip(recipe.stages, tiny.stages, strict=True):
        kept = {
            "learning_rate",
            "schedule",
            "temperature",
            "gradient_checkpointing",
            "batches",
            "data",
            "freeze",
        }
        assert before.model_dump(include=kept) == after.model_dump(include=kept)
        assert (before.mini_batch_size is None) == (after.mini_batch_size is None)
        assert len(getattr(before, "dims", ())) == len(set(getattr(after, "dims", ())))
    real, small = side_shapes(recipe.query, recipe.document), side_shapes(tiny.query, tiny.document)
    assert real.keys() == small.keys()
    for side in real:
        assert small[side].config["model_type"] == real[side].config["model_type"]
        assert small[side].width <= 64
        backbone = getattr(tiny, side)
        assert backbone.pooling == getattr(recipe, side).pooling
        assert backbone.max_length <= MAX_LENGTH
        assert (backbone.projection is None) == (getattr(recipe, side).projection is None)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_shrinks_into_bfloat16(name):
    tiny = shrink(load_recipe(name), "bfloat16")
    assert tiny.precision == "bf16"
    assert {backbone.dtype for backbone in (tiny.query, tiny.document) if backbone} == {"bfloat16"}


def test_another_dtype_is_refused():
    with pytest.raises(TinyError, match="got 'int8'"):
        shrink(load_recipe("mar-mini"), "int8")


def test_equal_widths_stay_equal_and_order_stays():
    recipe = load_recipe("mar-0.3b-4b")
    tiny = shrink(recipe)
    document = tiny.stages[3]
    assert tiny.dim == shape_of(tiny.query).width
    assert document.dims[-1] == shape_of(tiny.document).width
    assert document.dims[-2] == tiny.dim
    assert list(document.dims) == sorted(set(document.dims))
    hotel = shrink(load_recipe("hotelmatch"))
    assert hotel.query.projection == hotel.dim == shape_of(hotel.document).width


def test_a_pruned_copy_stays_smaller_than_its_original():
    tiny = shrink(load_recipe("kale"))
    assert len(tiny.query.layers_of_document) == 3
    assert shape_of(tiny.query, tiny.document).layers < shape_of(tiny.document).layers


def test_a_small_share_of_the_data_still_fills_a_batch():
    given = {"answers": 0.0001, "open": 3.0, "questions": 0.5}
    recipe = load_recipe("mar-e5", [f"data.{name}.weight={weight}" for name, weight in given.items()])
    tiny = {entry.name: entry for entry in shrink(recipe).data}
    assert {name: tiny[name].weight for name in given} == {"answers": 0.125, "open": 3.0, "questions": 0.5}
    source = read_source(tiny["answers"], 42)
    assert len(read_columns(source, 42)) >= shrink(recipe).stages[0].batch_size


@pytest.mark.parametrize(
    ("data", "kept"),
    [(["answers", "paraphrases"], ["answers"]), (["paraphrases"], None), (None, "all triples")],
)
def test_a_stage_that_mines_keeps_the_data_that_have_triples(data, kept, tmp_path):
    stage = {
        "stage": "contrastive",
        "name": "hard",
        "side": "document",
        "data": data,
        "negatives": 4,
        "mine": {"range_max": 50},
        "batch_size": 64,
        "learning_rate": 1.0e-4,
        "temperature": 0.02,
    }
    child = {"extends": "mar-e5", "name": "hard", "description": "hard negatives", "stages": {"hard": stage}}
    path = tmp_path / "hard.yaml"
    path.write_text(yaml.safe_dump(child), encoding="utf-8")
    tiny = next(stage for stage in shrink(load_recipe(path)).stages if stage.name == "hard")
    if kept is None:
        assert tiny.mine is None
    else:
        everything = ("open", "answers", "questions", "pages")
        assert tiny.data == (everything if kept == "all triples" else tuple(kept))
        assert (tiny.mine.range_max, tiny.negatives) == (50, 2)


def test_last_layers_stay_the_last_ones():
    tiny = shrink(load_recipe("mar-e5"))
    depth = shape_of(tiny.document).layers
    assert tiny.query.layers_of_document == tuple(range(depth - 2, depth))


@pytest.mark.parametrize("name", known_backbones())
def test_small_configurations_keep_the_architecture(name):
    shape = known_backbones()[name]
    big, small = shape.config, small_config(shape, 32, 2)
    model = AutoModel.from_config(AutoConfig.for_model(**small, vocab_size=50))
    assert sum(parameter.numel() for parameter in model.parameters()) < 200_000
    for key in ("rope_parameters", "tie_word_embeddings", "hidden_act", "attention_bias", "layer_norm_eps"):
        assert small.get(key) == big.get(key)
    if "num_key_value_heads" in big:
        kinds = [
            "all" if heads == shared else "one" if shared == 1 else "some"
            for heads, shared in (
                (config["num_attention_heads"], config["num_key_value_heads"]) for config in (big, small)
            )
        ]
        assert kinds[0] == kinds[1]
    if name == "Qwen/Qwen3-4B":  # heads wider than the hidden size, together
        assert small["head_dim"] * small["num_attention_heads"] > small["hidden_size"]


def test_an_encoder_of_few_layers_gets_a_type_for_each_new_one():
    shape = known_backbones()["Qwen/Qwen3-4B"]
    shallow = replace(shape, config=shape.config | {"layer_types": ["full_attention"] * 2})
    small = small_config(shallow, 32, 4)
    assert (small["num_hidden_layers"], small["layer_types"]) == (4, ["full_attention"] * 4)


def test_a_recipe_with_an_external_teacher_cannot_be_shrunk():
    recipe = load_recipe("distill", ["stages.distill.teacher=some/model"])
    with pytest.raises(TinyError, match="stage distill learns from 'some/model'"):
        shrink(recipe)


def test_qrels_of_the_written_evaluation_refer_to_its_texts(tmp_path):
    import json

    folder = write_evaluation(tmp_path / "dev", queries=5, documents=10)
    rows = [line.split("\t") for line in (folder / "qrels/test.tsv").read_text().splitlines()]
    assert rows[0] == ["query-id", "corpus-id", "score"]

    def ids(name):
        return {json.loads(line)["_id"] for line in (folder / name).read_text().splitlines()}

    assert len(ids("queries.jsonl")) == 5
    assert {row[0] for row in rows[1:]} <= ids("queries.jsonl")
    assert {row[1] for row in rows[1:]} <= ids("corpus.jsonl")
    assert 10 <= len(ids("corpus.jsonl")) < 100
