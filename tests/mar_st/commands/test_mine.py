from __future__ import annotations

import json

import pytest

from mar_st.data.columns import to_dataset
from mar_st.data.training import read_source
from mar_st.recipes.schema import Data
from tests.conftest import read_jsonl, write_jsonl

TOPICS = ["头疼", "发热", "感冒", "咳嗽", "高血压", "失眠", "胃痛", "皮疹"]


@pytest.fixture
def pairs(tmp_path):
    rows = [
        {"query": f"{topic}{how}", "positive": f"{topic}的人{what}，请看医生", "source": f"s{i % 2}",
         "instruction": "找答案"}
        for i, topic in enumerate(TOPICS)
        for how, what in (("怎么办", "要休息"), ("吃什么药", "可以吃药"), ("的饮食", "要清淡"))
    ]  # fmt: skip
    return write_jsonl(tmp_path / "pairs.jsonl", rows)


def test_mine_writes_triples_that_train(run_mar, pairs, tmp_path):
    out = tmp_path / "mined"
    code, text, _ = run_mar(
        "mine", pairs, out, "--model", "bm25", "--range-max", 20, "--range-min", 1, "--num-negatives", 4
    )
    assert code == 0
    assert "triples written: 24" in text
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["counts"]["triples written"] == 24
    assert manifest["candidates"]["before the window"] == 24
    rows = read_jsonl(out / "triples.jsonl")
    assert list(rows[0]) == ["query", "positives", "negatives", "instruction", "source"]
    assert (rows[0]["source"], rows[0]["instruction"]) == ("s0", "找答案")
    assert all(len(row["negatives"]) == 4 for row in rows)
    # The folder is a data source like any other.
    for path in (out, out / "triples.jsonl"):
        source = read_source(Data(name="mined", path=str(path), prompt=""))
        assert [t.query for t in source.triples] == [row["query"] for row in rows]
    assert len(to_dataset(source.triples, negatives=4, seed=0)) == 24
    assert not (tmp_path / "mined.run").exists()


def test_models_mine_the_rows_that_pass_the_filter(run_mar, pairs, tmp_path, mar):
    mar.save_pretrained(str(tmp_path / "mar"))
    code, text, err = run_mar(
        "mine", pairs, tmp_path / "mined", "--model", tmp_path / "mar", "--model", "bm25", "--teacher",
        tmp_path / "mar", "--relative-margin", "0.05", "--range-max", 10, "--num-negatives", 2,
        "--where", "source=s1", "--json",
    )  # fmt: skip
    manifest = json.loads(text)
    assert (code, manifest["counts"]["triples read"]) == (0, 12)
    assert manifest["settings"]["where"] == {"source": "s1"}
    assert any((tmp_path / "teacher-store").rglob("teacher.json"))
    assert "mining: 12 queries" in err


@pytest.mark.parametrize("option", ["--where", "--column"])
def test_an_option_without_its_value_is_refused(run_mar, pairs, tmp_path, option):
    code, _, err = run_mar("mine", pairs, tmp_path / "mined", "--model", "bm25", option, "source")
    assert (code, "expected KEY=VALUE" in err) == (2, True)


def test_a_missing_model_is_refused(run_mar, pairs, tmp_path):
    code, _, err = run_mar("mine", pairs, tmp_path / "mined", "--model", "./no-model")
    assert (code, "There is no folder ./no-model" in err) == (2, True)
