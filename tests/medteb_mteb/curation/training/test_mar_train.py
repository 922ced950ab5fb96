"""A recipe over what the three steps write: read, planned and trained by `mar`."""

from __future__ import annotations

import pytest
import torch
import yaml
from fault_server import rules
from llm_server import llm_at

from mar_st.mining import BM25
from mar_st.recipes.load import load_recipe
from mar_st.runs.train import train
from medteb_mteb.curation.training import (
    RoundTrip,
    TwoLists,
    Weighted,
    alignment_sets,
    make_triples,
    round_trip,
)

DISEASES = ["感冒", "高血压", "糖尿病", "偏头痛", "湿疹", "痛风", "哮喘", "肺炎"]
ASPECTS = {"不能吃什么": "患者不能吃辛辣油腻的东西。", "怎么治疗": "的治疗以休息和按时用药为主。"}


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def texts(tmp_path, write):
    queries = [{"_id": f"q{d}{a}", "text": d + a} for d in DISEASES for a in ASPECTS]
    documents = [{"_id": f"d{d}{a}", "text": d + text} for d in DISEASES for a, text in ASPECTS.items()]
    write(tmp_path / "queries.jsonl", queries)
    write(tmp_path / "documents.jsonl", documents)
    # Rows of a batch share no text, so a query has few documents: those of its disease and of the next.
    names = [row["_id"] for row in documents] * 2
    pools = [
        {"query-id": row["_id"], "corpus-ids": names[n - n % 2 : n - n % 2 + 4]}
        for n, row in enumerate(queries)
    ]
    write(tmp_path / "pools.jsonl", pools)
    rows = [{"query": q["text"], "positive": d["text"]} for q, d in zip(queries, documents, strict=True)]
    write(tmp_path / "pairs.jsonl", rows)
    return tmp_path


@pytest.mark.thorough
@pytest.mark.usefixtures("one_thread")
def test_a_model_is_trained_on_all_three(texts):
    with rules.serving(rules.Endpoint()) as url:
        report = make_triples(
            *(texts / f"{name}.jsonl" for name in ("queries", "documents", "pools")),
            texts / "judged",
            llm_at(url, model="rule-sorter"),
            TwoLists(negatives=1),
            already_anonymous=True,
            show_progress=False,
        )
    assert report.counts["triples"] > 8
    how = RoundTrip(depth=5, negatives=1)
    assert round_trip(texts / "pairs.jsonl", texts / "trip", BM25(), how, show_progress=False).kept > 8
    aligned = alignment_sets(
        texts / "aligned",
        [Weighted(str(texts / "queries.jsonl"))],
        [Weighted(str(texts / "documents.jsonl"))],
        show_progress=False,
    )
    common = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    common |= {"max_position_embeddings": 64}
    tokenizer = {"vocab_size": 120, "max_token_length": 1}
    document = {**common, "model_type": "qwen3", "hidden_size": 32, "num_key_value_heads": 1, "head_dim": 16}
    short = {"batch_size": 2, "learning_rate": 1e-3, "max_steps": 2, "temperature": 0.1}
    recipe = {
        "name": "tiny",
        "description": "for a test",
        "dim": 16,
        "prompts": {"query": "检索："},
        "query": {
            "max_length": 32,
            "tokenizer": tokenizer,
            "config": {**common, "model_type": "gte", "hidden_size": 16},
        },
        "document": {"max_length": 32, "tokenizer": tokenizer, "config": document},
        "data": [
            {"name": "judged", "path": str(texts / "judged"), "negatives": 1},
            {"name": "trip", "path": str(texts / "trip" / "triples.jsonl"), "negatives": 1},
            *yaml.safe_load("\n".join(aligned.data())),
        ],
        "stages": [
            {**short, "stage": "align", "name": "align", "data": ["aligned-queries", "aligned-documents"]},
            {**short, "stage": "joint", "name": "joint", "data": ["judged", "trip"]},
        ],
    }
    (texts / "tiny.yaml").write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")
    lines: list[str] = []
    model = train(load_recipe(texts / "tiny.yaml"), texts / "run", save_steps=1000, say=lines.append)
    assert (model / "modules.json").is_file()
    printed = "\n".join(lines)
    assert f"{report.counts['triples']} triples" in printed
    assert "16 texts" in printed
