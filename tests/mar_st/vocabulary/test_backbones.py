"""`vocabulary` of a backbone in a recipe: cut once, before anything is trained."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
import yaml
from pydantic import ValidationError
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM, AutoTokenizer

from mar_st.data import read_source, source_digest
from mar_st.planning.backbones import count, shape_of
from mar_st.planning.tiny import shrink
from mar_st.recipes.load import load_recipe
from mar_st.recipes.schema import Backbone
from mar_st.runs.lineage import stage_digests
from mar_st.runs.models import check_models
from mar_st.runs.train import train
from mar_st.vocabulary import VocabularyError, backbones
from tests.mar_st.train_helpers import silent, weights

from .vocabulary_helpers import encoder_folder

pytestmark = pytest.mark.usefixtures("one_thread")

KEEP = 120
SHORT = ["stages.0.max_steps=2", "stages.1.max_steps=2", "stages.2.max_steps=2"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return encoder_folder(tmp_path_factory.mktemp("source") / "bert", "bert", loader=AutoModelForMaskedLM)


@pytest.fixture
def cut_recipe(recipe_file, source, tmp_path):
    """The small recipe with a pre-trained query encoder whose vocabulary is cut."""

    def load(*overrides, keep=KEEP, texts=("answers",)):
        content = yaml.safe_load(recipe_file.read_text(encoding="utf-8"))
        content["query"] = {
            "source": str(source), "max_length": 32, "vocabulary": {"keep": keep, "texts": list(texts)}
        }  # fmt: skip
        path = tmp_path / "cut.yaml"
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return load_recipe(path, [*SHORT, *overrides])

    return load


@pytest.mark.thorough
def test_every_stage_uses_the_cut_encoder(cut_recipe, tmp_path, monkeypatch):
    lines, calls, cut = [], [], backbones.trim
    monkeypatch.setattr(backbones, "trim", lambda *a, **k: calls.append(a) or cut(*a, **k))
    out = tmp_path / "run"
    train(cut_recipe(), out, say=lines.append, until="query-init")
    train(cut_recipe(), out, say=lines.append, until="align")
    assert len(calls) == 1  # once per run folder
    (line,) = [line for line in lines if line.startswith("query vocabulary: ")]
    size = int(re.search(r"-> (\d+) pieces", line).group(1))
    assert size <= KEEP
    for stage in ("01-query-init", "03-align"):
        loaded = SentenceTransformer(str(out / stage / "model"), device="cpu")
        encoder = loaded[0].sub_modules["query"][0] if stage == "03-align" else loaded[0]
        assert encoder.model.get_input_embeddings().weight.shape[0] == size == len(encoder.tokenizer)
        assert np.isfinite(loaded.encode_query(["头疼吃什么药"])).all()


@pytest.mark.thorough
def test_an_interrupted_cut_is_repeated(cut_recipe, tmp_path, monkeypatch):
    train(cut_recipe(), tmp_path / "whole", say=silent, until="query-init")

    def killed(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mar_st.vocabulary.folders.write_configs", killed)
        with pytest.raises(KeyboardInterrupt):
            train(cut_recipe(), tmp_path / "run", say=silent, until="query-init")
    assert not (tmp_path / "run" / "01-query-init").exists()
    train(cut_recipe(), tmp_path / "run", say=silent, until="query-init")
    first, second = (tmp_path / name / "01-query-init" / "model" for name in ("whole", "run"))
    assert weights(first) == weights(second)
    assert not list((tmp_path / "run" / "vocabulary").glob("*.part"))


@pytest.mark.thorough
def test_runs_that_share_a_store_share_the_cut_encoder(cut_recipe, tmp_path, monkeypatch):
    calls, cut = [], backbones.trim
    monkeypatch.setattr(backbones, "trim", lambda *a, **k: calls.append(a) or cut(*a, **k))
    for run, steps in (("a", 1), ("b", 2)):
        recipe = cut_recipe(f"stages.0.max_steps={steps}")
        train(recipe, tmp_path / run, stages=tmp_path / "store", say=silent, until="query-init")
    assert len(calls) == 1


@pytest.mark.thorough
def test_retromae_starts_from_the_cut_head(cut_recipe, tmp_path):
    stage = {"stage": "retromae", "name": "pretrain", "batch_size": 8, "learning_rate": 1e-3, "max_steps": 1}
    content = cut_recipe().model_dump(mode="json")
    content["stages"].insert(0, stage)
    lines = []
    train(type(cut_recipe()).model_validate(content), tmp_path / "run", say=lines.append, until="pretrain")
    assert any("masked-LM head from that of" in line for line in lines)


def test_the_digest_of_a_stage_covers_keep_and_texts(cut_recipe, recipe_file, tmp_path):
    def digests(recipe):
        contents = {entry.name: source_digest(read_source(entry)) for entry in recipe.data}
        return stage_digests(recipe, contents)

    base = digests(cut_recipe())
    assert digests(cut_recipe()) == base
    (tmp_path / "texts.txt").write_text("头疼\n")
    changed = [digests(cut_recipe(keep=KEEP + 1)), digests(cut_recipe(texts=[str(tmp_path / "texts.txt")]))]
    (tmp_path / "texts.txt").write_text("发热\n")
    changed.append(digests(cut_recipe(texts=[str(tmp_path / "texts.txt")])))
    for other in changed:
        assert other[0] != base[0]  # query-init
        assert other[1] == base[1]  # document-init
        assert other[2] != base[2]  # align
    assert len({other[0] for other in changed}) == 3


def test_the_plan_counts_the_cut_vocabulary(cut_recipe, source):
    whole, cut = (
        count(shape_of(Backbone.model_validate({"source": str(source), **more})))
        for more in ({}, {"vocabulary": {"keep": KEEP, "texts": ["x"]}})
    )
    size = len(AutoTokenizer.from_pretrained(source)) + 7
    assert whole.embeddings - cut.embeddings == whole.total - cut.total == 32 * (size - KEEP)
    small = shrink(cut_recipe())
    assert small.query.source is small.query.vocabulary is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 100_000}, "pieces; give a smaller number, or leave 'vocabulary' out"),
        ({"texts": ["nowhere.jsonl"]}, "'nowhere.jsonl', which is not a data entry"),
        ({"texts": ["hub:org/name"]}, "'hub:org/name', which is not a data entry"),
    ],
)
def test_unsupported_models_are_refused_before_anything_is_loaded(cut_recipe, options, message):
    with pytest.raises(VocabularyError, match=message):
        check_models(cut_recipe(**options))


def test_a_random_encoder_has_no_vocabulary_to_cut():
    with pytest.raises(ValidationError, match="'vocabulary' cuts that of a 'source'"):
        Backbone.model_validate({"layers_of_document": [0], "vocabulary": {"keep": 100, "texts": ["a"]}})


def test_a_recipe_of_an_earlier_version_loads_and_keeps_its_digests(recipe_file):
    recipe = load_recipe(recipe_file)
    assert recipe.query.vocabulary is None
    content = json.loads(recipe.model_dump_json())
    for side in ("query", "document"):
        del content[side]["vocabulary"]
    assert type(recipe).model_validate(content) == recipe
    assert torch.get_num_threads() == 1
