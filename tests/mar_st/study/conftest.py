"""A base recipe of three short stages, a study on it, and tasks that its data teach."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import yaml

SYMPTOMS = ["头疼", "发热", "咳嗽", "胸闷", "腹泻", "失眠"]
QUESTIONS = {
    "吃什么药": "用药建议：{}患者可以在医生指导下服用药物。",
    "挂什么科": "就诊科室：{}应当先到门诊挂号。",
    "怎么预防": "预防方法：避免{}需要注意作息。",
    "要做什么检查": "检查项目：{}一般先做血常规。",
}


@pytest.fixture(scope="package", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package", autouse=True)
def _few_timings():
    """Queries are timed five times in place of a hundred: no test asks how long they take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mar_st.study.cost.TIMED_QUERIES", 5)
        patch.setattr("mar_st.study.cost.WARM_UP_QUERIES", 1)
        yield


def _jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_study(tmp_path):
    """Write `base.yaml`, `study.yaml` (three rows, two seeds) and the tasks `faq` and `pairs`."""
    rows = [
        {"query": symptom + ending, "positive": answer.format(symptom)}
        for symptom in SYMPTOMS
        for ending, answer in QUESTIONS.items()
    ]
    _jsonl(tmp_path / "triples.jsonl", rows)
    _jsonl(
        tmp_path / "faq/corpus.jsonl", [{"_id": f"d{i}", "text": r["positive"]} for i, r in enumerate(rows)]
    )
    _jsonl(tmp_path / "faq/queries.jsonl", [{"_id": f"q{i}", "text": r["query"]} for i, r in enumerate(rows)])
    qrels = "".join(f"q{i}\td{i}\t1\n" for i in range(len(rows)))
    (tmp_path / "faq/qrels").mkdir()
    (tmp_path / "faq/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels, encoding="utf-8")
    queries = [row["query"] for row in rows]
    pairs = [(a, b, float(a[:2] == b[:2])) for a, b in zip(queries, queries[1:] + queries[:1], strict=True)]
    pairs += [(a, a + "呢", 2.0) for a in queries[::3]]
    _jsonl(
        tmp_path / "pairs/test.jsonl",
        [dict(zip(("sentence1", "sentence2", "score"), p, strict=True)) for p in pairs],
    )
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
             "max_position_embeddings": 64, "initializer_range": 0.2}  # fmt: skip
    tokenizer = {"vocab_size": 200, "max_token_length": 2}
    fast = {"batch_size": 8, "learning_rate": 5.0e-3, "epochs": 2}
    base = {
        "name": "tiny",
        "description": "for tests",
        "dim": 16,
        "prompts": {"query": "检索："},
        "query": {"max_length": 24, "tokenizer": tokenizer, "config": {**shape, "model_type": "gte"}},
        "document": {
            "max_length": 32,
            "tokenizer": tokenizer,
            "config": {
                **shape,
                "model_type": "qwen3",
                "hidden_size": 24,
                "num_key_value_heads": 1,
                "head_dim": 12,
            },
        },
        "data": [{"name": "answers", "path": str(tmp_path / "triples.jsonl"), "negatives": 0}],
        "stages": [
            {**fast, "stage": "contrastive", "name": "document-init", "side": "document", "temperature": 0.1},
            {**fast, "stage": "align", "name": "align"},
            {**fast, "stage": "joint", "name": "joint", "temperature": 0.1},
        ],
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base, allow_unicode=True), encoding="utf-8")
    study = {
        "name": "tiny-study",
        "base": "base.yaml",
        "full": "full",
        "seeds": [1, 2],
        "resamples": 1000,
        "rows": [
            {"name": "full", "label": "all stages"},
            {"name": "no-joint", "changes": {"stages": {"joint": None}}},
            {"name": "warmer", "set": {"stages.joint.temperature": 0.5}},
        ],
        "tasks": [
            {"name": "faq", "path": str(tmp_path / "faq")},
            {"name": "pairs", "path": str(tmp_path / "pairs"), "metric": "spearman"},
        ],
        "published": [{"name": "paper", "source": "a table", "scores": {"full": 60.0, "no-joint": 70.0}}],
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study, allow_unicode=True), encoding="utf-8")
    return tmp_path


@pytest.fixture
def study_folder(tmp_path):
    """A folder with a study, its base recipe and its tasks, see `write_study`."""
    return write_study(tmp_path)


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory):
    """A study folder after an uninterrupted run into `out`, and its lines. Copy before changing."""
    from mar_st.study import load_study
    from mar_st.study.grid import run_study

    folder, lines = write_study(tmp_path_factory.mktemp("study")), []
    run_study(load_study(folder / "study.yaml"), folder / "out", say=lines.append)
    return folder, lines


@pytest.fixture
def change(study_folder):
    """Edits the study: ``change(seeds=1)``."""

    def edit(**settings):
        path = study_folder / "study.yaml"
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        path.write_text(yaml.safe_dump({**content, **settings}, allow_unicode=True), encoding="utf-8")
        return path

    return edit


@pytest.fixture
def trained(monkeypatch):
    """Names of the stages that were really trained, in order."""
    from mar_st.runs import train as runner

    names = []
    original = runner.train_stage

    def dispatch(model, sources, stage, *args, **parts):
        names.append(stage.name)
        original(model, sources, stage, *args, **parts)

    monkeypatch.setattr(runner, "train_stage", dispatch)
    return names


@pytest.fixture
def done(finished_study, study_folder):
    """The study folder with the results of a finished run in `out`."""
    shutil.copytree(finished_study[0] / "out", study_folder / "out", symlinks=True)
    return study_folder / "out"


@pytest.fixture
def run(study_folder):
    from mar_st.study import load_study
    from mar_st.study.grid import run_study

    def call(out="out", **options):
        lines = []
        table = run_study(
            load_study(study_folder / "study.yaml"), study_folder / out, say=lines.append, **options
        )
        return table, lines

    return call
