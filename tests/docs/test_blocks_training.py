"""Code blocks of the pages on training, executed with small random encoders and few steps."""

from __future__ import annotations

import pytest
import torch
import yaml
from transformers import AutoModel

from mar_st.recipes.load import load_recipe
from tests.conftest import write_retrieval
from tests.docs.blocks import BLOCKS, EXECUTED
from tests.docs.conftest import ANSWERS, ASKED, texts_of
from tests.mar_st.conftest import make_config, make_tokenizer, save_cross_encoder
from tests.mar_st.vocabulary.vocabulary_helpers import encoder_folder as save_multilingual

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

E5 = "intfloat/multilingual-e5-small"
#: Sizes of the recipe of the guide, and those that stand for them.
SIZES = {
    "dim: 768": "dim: 32",
    "precision: bf16": "precision: fp32",
    "[256, 768, 1024]": "[16, 32, 64]",
    "batch_size: 256": "batch_size: 16",
    "batch_size: 64": "batch_size: 16",
    "Alibaba-NLP/gte-multilingual-mlm-base": "./gte",
    "Qwen/Qwen3-0.6B": "./qwen3",
}


@pytest.fixture
def training(workspace):
    """Data of a user, and encoders under the names of the docs."""
    asked, answers = texts_of(ASKED, "q"), texts_of(ANSWERS, "d")
    triples = [
        {"query": query["text"], "positive": answer["text"], "negative": other["text"], "source": "cmedir"}
        for query, answer, other in zip(asked, answers, [*answers[5:], *answers[:5]], strict=True)
    ]
    workspace.rows("mined/triples.jsonl", triples)
    pairs = [{"query": row["query"], "positive": row["positive"]} for row in triples]
    for name in ("pairs.jsonl", "data/pairs.jsonl"):
        workspace.rows(name, pairs)
    workspace.rows("texts.jsonl", answers)
    workspace.rows("corpus.jsonl", answers)
    workspace.rows("queries.jsonl", asked)
    write_retrieval(workspace.folder / "my-clinic-faq")
    workspace.names["texts"] = [row["text"] for row in answers]
    torch.manual_seed(0)
    for name, size, role in (("gte", 32, "query"), ("qwen3", 64, "document")):
        AutoModel.from_config(make_config(name, size)).save_pretrained(workspace.folder / name)
        make_tokenizer(role).save_pretrained(workspace.folder / name)
    return workspace


def test_the_guides_on_training_run(training):
    code = BLOCKS["how-to/train-on-your-data.md:1"].code
    for name, other in SIZES.items():
        code = code.replace(name, other)
    recipe = yaml.safe_load(code)
    for name in ("my-mar", "my-recipe", "my-distill"):
        training.text(f"{name}.yaml", yaml.safe_dump(recipe | {"name": name}, allow_unicode=True))
    study = yaml.safe_load(BLOCKS["how-to/ablate.md:1"].code)
    study |= {"seeds": 2, "tasks": study["tasks"][:1]}
    training.text("my-study.yaml", yaml.safe_dump(study, allow_unicode=True))
    save_cross_encoder(training.folder / "base", 1)
    graded = [
        {"query": f"头疼{number}", "document": text, "label": label}
        for number in range(12)
        for label, text in enumerate(["感冒", "咳嗽", "高血压"])
    ]
    training.rows("graded.jsonl", graded)
    save_multilingual(training.folder / E5)
    training.swapped |= {
        f"--base {E5}": "--base base --max-length 16 --calibration 0.5",
        "--layers 6": "--layers 1",
        "--keep 36000": "--keep 60",
        "mar plan mar-mini --gpu cpu": "mar plan my-mar.yaml --gpu cpu",
        "mar plan mar-small --trial": "mar plan my-mar.yaml --trial",
    }
    for step in EXECUTED["training"]:
        training.run(step)


def test_commands_with_packaged_recipes_run(training):
    """With the small encoders and the data of `--tiny`, and a step of each stage; of a study, one row."""
    training.text("my-recipe.yaml", "{extends: mar-mini, name: my-recipe}")
    for name in ("mar-mini", "mar-small", "mar-e5", "my-recipe.yaml", "mar-0.3b-4b"):
        stages = [stage.name for stage in load_recipe(name).stages]
        few = " ".join(f"--set stages.{stage}.max_steps=1" for stage in stages)
        last = "--stage retromae" if name == "mar-0.3b-4b" else ""
        training.swapped[f"mar train {name}"] = f"mar train {name} --tiny {few} {last}"
    training.swapped |= {
        "--tiny mar-0.3b-4b": "--tiny mini-symmetric-query",
        "mar ablate mini --out": "mar ablate mini --rehearse --tiny --row full --seeds 1 --out",
        "mar ablate small --out": "mar ablate small --rehearse --tiny --row full --seeds 1 --out",
        "mar ablate small-gpu": "mar ablate small-gpu --row full --seeds 1",
        "mar ablate e5 --out": "mar ablate e5 --rehearse --tiny --row mar --seeds 1 --out",
    }
    for step in EXECUTED["packaged recipes"]:
        training.run(step)
