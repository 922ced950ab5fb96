"""Computes the golden figures through public interfaces."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "models" / "mar-zh" / "src" / "mar_zh" / "sample"
LABELLED = ROOT / "tests" / "medteb_mteb" / "curation" / "anonymize" / "labelled"
TRAIN = ROOT / "tasks" / "MedTEBRetrieval" / "train"

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
RECIPE: dict[str, Any] = {
    "name": "golden",
    "description": "every kind of stage on tiny encoders",
    "seed": 7,
    "dim": 32,
    "prompts": {"query": "检索："},
    "query": {
        "max_length": 32,
        "tokenizer": {"vocab_size": 600, "max_token_length": 2},
        "config": {"model_type": "gte", "max_position_embeddings": 64, **TINY},
    },
    "document": {
        "max_length": 32,
        "tokenizer": {"vocab_size": 600, "max_token_length": 2},
        "config": {
            "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 8,
            "max_position_embeddings": 64, **TINY,
        },
    },
    "data": [{"name": "rows", "path": "rows.jsonl", "negatives": 1, "positives": "all"}],
    "stages": [
        {"stage": "retromae", "name": "retromae", "batch_size": 8, "learning_rate": 1e-3},
        {"stage": "contrastive", "name": "query", "side": "query", "batch_size": 8, "learning_rate": 1e-3,
         "temperature": 0.05},
        {"stage": "contrastive", "name": "document", "side": "document", "dims": [16, 32], "batch_size": 16,
         "mini_batch_size": 4, "learning_rate": 1e-3, "temperature": 0.05},
        {"stage": "align", "name": "align", "batch_size": 16, "learning_rate": 1e-3, "temperature": 0.1},
        {"stage": "distill", "name": "distill", "batch_size": 8, "learning_rate": 5e-4, "temperature": 0.05,
         "teacher": "document"},
        {"stage": "joint", "name": "joint", "batch_size": 8, "learning_rate": 5e-4, "temperature": 0.05},
    ],
}  # fmt: skip
#: Documents wider than queries, and the settings of stages that `RECIPE` leaves at their defaults.
CUT: dict[str, Any] = {
    **RECIPE,
    "description": "documents cut to the width of queries, and further settings of stages",
    "dim": 16,
    "query": {**RECIPE["query"], "config": {**RECIPE["query"]["config"], "hidden_size": 16}},
    "stages": [
        {"stage": "contrastive", "name": "query", "side": "query", "batch_size": 8, "learning_rate": 1e-3,
         "temperature": 0.05, "learnable_temperature": True, "token_dropout": 0.3, "length_groups": 4},
        {"stage": "contrastive", "name": "document", "side": "document", "dims": [16, 32], "batch_size": 8,
         "gradient_accumulation": 2, "lora_r": 4, "both_directions": True, "false_negative_margin": 0.1,
         "learning_rate": 1e-3, "temperature": 0.05, "negatives": 1, "mine": {"range_max": 20}},
        {"stage": "align", "name": "align", "batch_size": 16, "mini_batch_tokens": 128,
         "learning_rate": 1e-3, "teacher_prompt": "document"},
        {"stage": "joint", "name": "joint", "batch_size": 8, "learning_rate": 5e-4, "temperature": 0.05,
         "kl_weight": 1.0, "dims": [8, 16], "start_share": 0.5, "document_learning_rate": 1e-4},
        {"stage": "joint", "name": "frozen", "batch_size": 8, "mini_batch_size": 4, "learning_rate": 5e-4,
         "temperature": 0.05, "freeze": "document"},
    ],
}  # fmt: skip
RAW: dict[str, Any] = {
    **RECIPE,
    "description": "vectors that are not normalised, two texts a row",
    "stages": [
        {"stage": "align", "name": "raw", "batch_size": 8, "learning_rate": 1e-3, "vectors": "raw",
         "contrastive_weight": 0, "cosine_weight": 1.0, "kl_weight": 1.0, "text_weights": [0.6, 0.2]},
    ],
}  # fmt: skip


def command(*words: Any, cwd: Path | None = None) -> str:
    """Run `mar` or `medteb` in a process of its own."""
    module = {"mar": "mar_st.cli", "medteb": "medteb_mteb.cli"}[words[0]]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, words[1:])],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def run_scores(folder: Path) -> dict[str, float]:
    """Scores of `make run`, from the files of results that mteb writes."""
    command("medteb", "run", "-b", "MedTEB(cmn, mini)", "-m", "mar-mini", "-m", "bm25-jieba",
            "--output-folder", folder / "mini")  # fmt: skip
    command("medteb", "run", "--data", SAMPLE, "-m", "mar-zh", "-m", "mar-mini", "-m", "bm25-char-bigram",
            "--output-folder", folder / "sample")  # fmt: skip
    scores = {}
    for path in sorted(folder.rglob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(result, dict) and "task_name" in result and "scores" in result:
            model = next(part for part in reversed(path.parts) if re.search(r"mar-|bm25", part))
            for split, rows in result["scores"].items():
                scores[f"{model.split('__')[-1]} {result['task_name']} {split}"] = rows[0]["main_score"]
    return scores


def mar_zh_vectors() -> dict[str, np.ndarray]:
    """Vectors of eight questions by each query encoder of mar-zh, and of eight answers."""
    import mar_zh

    from mar_st import MAR

    queries = [json.loads(line)["text"] for line in (SAMPLE / "queries.jsonl").open(encoding="utf-8")][:8]
    documents = [json.loads(line)["text"] for line in (SAMPLE / "corpus.jsonl").open(encoding="utf-8")][:8]
    vectors = {}
    for name in ("query", "query-2", "query-lookup"):
        model = MAR.from_pretrained(mar_zh.path(), query=name, device="cpu")
        vectors[name] = np.asarray(model.encode_queries(queries), dtype=np.float32)
    return {**vectors, "document": np.asarray(model.encode_corpus(documents), dtype=np.float32)}


def sample_top10(folder: Path) -> dict[str, list[str]]:
    """The ten best documents of the packaged index for each of its questions."""
    command("mar", "index", "build", SAMPLE / "vectors", folder / "index")
    command("mar", "search", folder / "index", "--encoder", "mar-zh", "--queries", SAMPLE / "queries.jsonl",
            "--out", folder / "run.trec")  # fmt: skip
    best: dict[str, list[str]] = {}
    for line in (folder / "run.trec").read_text(encoding="utf-8").splitlines():
        query, _, document, rank, *_ = line.split()
        if int(rank) <= 10:
            best.setdefault(query, []).append(document)
    return best


def clinic_labels(folder: Path) -> dict[str, dict[str, int]]:
    """Relevant documents of the editions that the clinic example builds with the rule-based judges."""
    work = folder / "clinic"
    shutil.copytree(ROOT / "examples" / "clinic", work)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    build = work / "build.yaml"
    build.write_text(build.read_text(encoding="utf-8").replace(":8900/", f":{port}/"), encoding="utf-8")
    script = ROOT / "examples" / "rule_judges.py"
    server = subprocess.Popen([sys.executable, script, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        command("medteb", "build", build, cwd=work)
    finally:
        server.kill()
        server.wait()
    labels: dict[str, dict[str, int]] = {}
    for path in sorted((work / "build").rglob("qrels/*.tsv")):
        if "data" in path.relative_to(work).parts:
            task = path.parent.parent.name
            for line in path.read_text(encoding="utf-8").splitlines()[1:]:
                query, document, grade = line.split("\t")
                labels.setdefault(f"{task} {query}", {})[document] = int(grade)
    return labels


def anonymised() -> dict[str, dict[str, Any]]:
    """Recall and precision of the anonymiser on its labelled files, for each kind; those of strict mode."""
    from tools.anonymize.evaluate import quality, read_marked

    from medteb_mteb.curation.anonymize.find import Finder

    finders = {"": Finder(), " strict": Finder(strict=True)}
    return {
        path.stem + name: quality(read_marked(path), finder).to_json()
        for path in sorted(LABELLED.glob("*.txt"))
        for name, finder in finders.items()
    }


def losses(folder: Path) -> dict[str, list[float]]:
    """Losses of 20 steps of every kind of stage, by recipe and stage."""
    import yaml

    corpus = {}
    for line in (TRAIN / "corpus.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        corpus[row["_id"]] = row["text"]
    queries = {}
    for line in (TRAIN / "queries.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        queries[row["_id"]] = row["text"]
    rows = []
    for line in (TRAIN / "triples.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        positives, negatives = ([corpus[key] for key in row[name]] for name in ("positives", "negatives"))
        rows.append(
            {"query": queries[row["query-id"]], "positives": positives[:2], "negatives": negatives[:2]}
        )
        if len(rows) == 400:
            break
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    found = {}
    for name, recipe in {"": RECIPE, "cut ": CUT, "raw ": RAW}.items():
        stages = [{**stage, "max_steps": 20} for stage in recipe["stages"]]
        data = [{**recipe["data"][0], "path": str(folder / "rows.jsonl")}]
        content = yaml.safe_dump({**recipe, "stages": stages, "data": data}, allow_unicode=True)
        run = folder / f"{name}run"
        (folder / "recipe.yaml").write_text(content, encoding="utf-8")
        command("mar", "train", folder / "recipe.yaml", "--out", run, cwd=folder)
        for path in sorted(run.rglob("metrics.jsonl")):
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            found[f"{name}{path.parent.name}"] = [line["loss"] for line in lines if "loss" in line]
    return found
