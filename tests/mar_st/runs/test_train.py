from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.files import locked
from mar_st.recipes.load import load_recipe
from mar_st.recipes.schema import Recipe
from mar_st.runs.train import train
from tests.mar_st.train_helpers import STAGES, silent, train_in_two_processes, weights

pytestmark = pytest.mark.usefixtures("one_thread")


def _texts(recipe_file):
    rows = [json.loads(line) for line in recipe_file.with_name("triples.jsonl").open(encoding="utf-8")]
    return [row["query"] for row in rows], [row["positive"] for row in rows]


def test_the_model_retrieves_and_loads_everywhere(finished, recipe_file):
    queries, positives = _texts(recipe_file)
    plain = SentenceTransformer(str(finished / "model"), device="cpu")
    scores = plain.similarity(plain.encode_query(queries), plain.encode_document(positives)).numpy()
    assert plain.get_embedding_dimension() == 32
    assert (scores.argmax(axis=1) == np.arange(40)).mean() > 0.6  # by chance 0.025
    online = MAR.from_pretrained(finished / "model", routes="query", device="cpu")
    np.testing.assert_allclose(online.encode_queries(queries), plain.encode_query(queries), atol=1e-5)
    assert plain.prompts == {"document": "", "query": "检索：", "STS": "语义："}
    assert weights(finished / "model") == weights(finished / "04-joint" / "model")


def test_finished_stages_are_kept(finished, recipe_file):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("0*/**/*") if path.is_file()}
    lines = []
    train(load_recipe(recipe_file), finished, say=lines.append)
    kept = [line for line in lines if line.endswith("finished before, kept")]
    assert len(kept) == 4
    assert not list(finished.glob("*/checkpoints"))
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("0*/**/*") if path.is_file()}


@pytest.fixture(scope="module")
def short_run(recipe_file, tmp_path_factory):
    """The run folder of three steps per stage, and the overrides that make the recipe so short."""
    overrides = [f"stages.{stage[3:]}.epochs=0.6" for stage in STAGES]
    out = tmp_path_factory.mktemp("runs") / "short"
    train(load_recipe(recipe_file, overrides), out, say=silent)
    return out, overrides


@pytest.mark.thorough(but=["storage_dtype=float16-kept1"])
@pytest.mark.parametrize(
    ("override", "kept"),
    [
        ("stages.query-init.temperature=0.2", ["document-init"]),  # which does not depend on the queries
        ("storage_dtype=float16", ["query-init", "document-init", "align", "joint"]),
        ("stages.query-init=null", ["document-init"]),  # which keeps its folder
    ],
)
def test_a_change_reruns_its_stage_and_what_follows(short_run, recipe_file, tmp_path, override, kept):
    before, overrides = short_run
    out = tmp_path / "run"
    shutil.copytree(before, out)
    lines = []
    train(load_recipe(recipe_file, [*overrides, override]), out, say=lines.append)
    assert [line.split()[1].rstrip(":") for line in lines if "kept" in line] == kept
    assert weights(out / "model") != weights(before / "model")


def test_the_folder_of_another_recipe_is_refused(finished, recipe_file):
    with pytest.raises(MarError, match="holds a run of another recipe"):
        train(load_recipe(recipe_file, ["name=other"]), finished)


def test_align_leaves_the_document_encoder_untouched(finished):
    """Bit for bit: a vector space that is shared with stored document vectors must stay what it was."""
    started = load_file(finished / "02-document-init/model/model.safetensors")
    aligned = load_file(finished / "03-align/model/document_0_Transformer/model.safetensors")
    joint = load_file(finished / "04-joint/model/document_0_Transformer/model.safetensors")
    assert started.keys() == aligned.keys() == joint.keys()
    assert all(torch.equal(started[name], aligned[name]) for name in started)
    assert not any(torch.equal(aligned[name], joint[name]) for name in joint if "proj" in name)


def test_truncation_survives_joint_training(finished):
    dense = next((finished / "04-joint/model").rglob("document_*_Dense/model.safetensors"))
    (weight,) = load_file(dense).values()
    assert torch.equal(weight, torch.eye(32, 48))


@pytest.mark.slow
def test_two_processes_train_one_run(recipe_file, tmp_path):
    """Both take part in every stage, the first one writes, and the run resumes in a single process."""
    recipe = load_recipe(recipe_file, [f"stages.{stage[3:]}.epochs=0.4" for stage in STAGES])
    path = tmp_path / "short.yaml"
    process = train_in_two_processes(recipe, path, tmp_path / "run")
    assert process.stderr.count("stage joint: joint") == 1
    assert MAR.from_pretrained(tmp_path / "run/model", device="cpu").encode_queries(["头疼"]).shape == (1, 32)
    lines = []
    train(load_recipe(path), tmp_path / "run", say=lines.append)
    assert len([line for line in lines if line.endswith("finished before, kept")]) == 4


# -- symmetric recipes --


@pytest.mark.thorough
@pytest.mark.parametrize(("absent", "side"), [("document", "query"), ("query", "document")])
def test_one_backbone_gives_a_symmetric_model(recipe_file, tmp_path, absent, side):
    content = yaml.safe_load(recipe_file.read_text(encoding="utf-8"))
    stages = [stage for stage in content["stages"] if stage.get("side") == side]
    path = tmp_path / "one.yaml"
    path.write_text(
        yaml.safe_dump({**content, "name": "one", absent: None, "stages": stages}), encoding="utf-8"
    )
    recipe = load_recipe(path)
    assert not recipe.asymmetric
    model = SentenceTransformer(str(train(recipe, tmp_path / "out", say=silent)), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert model.get_embedding_dimension() == content[side]["config"]["hidden_size"]
    queries, positives = _texts(recipe_file)
    np.testing.assert_allclose(
        model.encode_query(queries[:3]), model.encode_document([f"检索：{q}" for q in queries[:3]]), atol=1e-5
    )
    scores = model.similarity(model.encode_query(queries), model.encode_document(positives)).numpy()
    assert (scores.argmax(axis=1) == np.arange(40)).mean() > 0.5


def test_a_second_launch_with_the_same_folder_is_refused(recipe_file, tmp_path):
    with locked(tmp_path / "run"), pytest.raises(MarError, match="Another process is writing"):
        train(load_recipe(recipe_file), tmp_path / "run", say=silent)


@pytest.mark.slow
def test_runs_share_stages_by_their_digest(recipe_file, tmp_path):
    store = tmp_path / "store"
    short = [f"stages.{stage[3:]}.epochs=0.2" for stage in STAGES]
    first = train(load_recipe(recipe_file, short), tmp_path / "first", stages=store, say=silent)
    lines = []
    other = load_recipe(recipe_file, [*short, "name=other", "stages.joint.epochs=0.4"])
    second = train(other, tmp_path / "second", stages=store, say=lines.append)
    assert [line.split()[1].rstrip(":") for line in lines if "kept" in line] == STAGES_KEPT
    assert len(list(store.glob("*/done.json"))) == 5
    assert weights(first) != weights(second)


STAGES_KEPT = ["query-init", "document-init", "align"]


def test_the_card_has_data_results_and_the_recipe(finished):
    card = (finished / "model" / "README.md").read_text(encoding="utf-8")
    header = yaml.safe_load(card.split("---")[1])
    assert header["library_name"] == "sentence-transformers"
    assert header["tags"] == ["mar", "asymmetric"]
    assert header["n_parameters"] > 10_000
    assert "| joint | joint | " in card
    assert load_recipe_of(card).stages[-1].name == "joint"


def load_recipe_of(card):
    return Recipe.model_validate(yaml.safe_load(card.split("```yaml")[1].split("```")[0]))
