"""Code blocks of the tutorial and the guides on building benchmarks and training sets, executed with
rule-based judges."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medteb_mteb.editions import write_manifest
from tests.conftest import write_retrieval
from tests.docs.blocks import EXECUTED, ROOT
from tests.docs.conftest import ASKED, texts_of
from tests.mar_st.conftest import save_cross_encoder
from tests.medteb_mteb.results import write_result

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]
#: Documents of 20 characters or more, about which an LLM can ask something.
ANSWERS = (
    "患者不能吃辛辣油腻的东西，饮食要清淡。",
    "的治疗以休息和按时用药为主，少数人要住院。",
    "一般不会传染给家人，不必分开住，也不用担心。",
    "是常见的疾病，多数人休息几天就会慢慢好转。",
)
PAIRS = (
    "高血压 血压高",
    "糖尿病 血糖高",
    "感冒 伤风",
    "失眠 睡不着",
    "便秘 大便干",
    "贫血 血虚",
    "胃炎 胃发炎",
    "哮喘 喘病",
)
SYNONYMS = "origin\treplace\n" + "".join(pair.replace(" ", "\t") + "\n" for pair in PAIRS)


@pytest.fixture
def raw(workspace, rules, monkeypatch):
    """Queries, documents and a dictionary, and descriptions of LLMs."""
    monkeypatch.setattr(
        "medteb_mteb.curation.edition.assemble.MIN_TEST_QUERIES", 1
    )  # there are a dozen queries
    workspace.rows("queries.jsonl", texts_of(ASKED[:3], "q"))
    workspace.rows("documents.jsonl", texts_of(ANSWERS, "d"))
    for name in ("synonyms.tsv", "terms.tsv"):
        workspace.text(name, SYNONYMS)
    for name, model in (("sorter", "rule-sorter"), ("asker", "rule-questions")):
        workspace.text(f"{name}.yaml", f"llm: {{name: {name}, model: {model}, base_url: {rules}}}\n")
    # A test of a dozen queries is written only if asked for.
    workspace.swapped |= {
        "--test 300": "--test 6 --small",
        "--test 0.3": "--test 0.5",
        "test: 0.3": "test: 0.65",
        "test=0.3": "test=0.65",
    }
    workspace.swapped["--llm rewriter.yaml"] = "--llm rewriter.yaml --test 0.5"
    workspace.swapped |= {"judgements.sqlite answers": "work/judgements.sqlite work/answers"}
    workspace.swapped |= {"verify judgements": "verify work/judgements"}
    return workspace


def test_the_tutorial_runs(raw):
    raw.text(
        "build.yaml", raw.swap((ROOT / "examples" / "clinic" / "build.yaml").read_text(encoding="utf-8"))
    )

    raw.text("examples/clinic/train.yaml", (ROOT / "examples/clinic/train.yaml").read_text(encoding="utf-8"))
    few = " ".join(f"--set stages.{stage}.max_steps=1" for stage in ("document-init", "align", "joint"))
    raw.swapped["mar train examples/clinic/train.yaml"] = f"mar train examples/clinic/train.yaml --tiny {few}"
    raw.swapped["examples/clinic/build/data"] = "build/data"

    def stored():
        """Vectors of a teacher that was paid."""
        options = "--epochs 0.2 --batch-size 8 --layers 1 --width 32 --vocabulary 300 --held-out 4"
        raw.command(f"mar align --teacher mar-mini --texts documents.jsonl --out student {options}")
        raw.patch.setenv("MAR_STORE", "teacher-store")

    def downloaded():
        """A copy of an edition with the files that the Hub and its client add."""
        shutil.copytree(raw.folder / "data" / "MedTEBRetrieval", raw.folder / "my-clinic")
        raw.text("my-clinic/.gitattributes", "*.parquet filter=lfs\n")
        raw.text("my-clinic/.cache/huggingface/download/corpus.jsonl.metadata", "0\n")

    raw.before |= {
        "medteb run --data my-clinic -m": downloaded,
        "medteb validate data/MedTEBRetrieval --run": lambda: (
            write_run(raw.folder / "data" / "MedTEBRetrieval" / "queries.jsonl", raw.folder / "mar.trec"),
            shutil.copytree(raw.folder / "work" / "judged", raw.folder / "second-judge"),
        ),
        'mar verify "$MAR_STORE"': stored,
    }
    for step in EXECUTED["tutorial"]:
        raw.run(step)
    assert (raw.folder / "build" / "data" / "MedTEBRetrieval" / "manifest.json").is_file()


@pytest.fixture
def clean(raw):
    """The same, anonymised, under the names of the guides."""
    for name in ("queries", "documents"):
        raw.command(f"medteb anonymize {name}.jsonl clean/{name} -q")
        shutil.copytree(raw.folder / "clean" / name, raw.folder / name)
    shutil.copytree(raw.folder / "clean" / "documents", raw.folder / "clean" / "articles")
    return raw


def fill(sheet, copies):
    """Copies of a sheet of pairs that experts have filled in."""
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        head, *rows = list(csv.reader(file))
    empty = next(place for place in range(len(head)) if not any(row[place] for row in rows))
    for number, copy in enumerate(copies):
        answers = [
            [*row[:empty], "SABCD"[(place + number) % 5], *row[empty + 1 :]] for place, row in enumerate(rows)
        ]
        with (sheet.parent / copy).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *answers])


def write_run(queries, run):
    """A run in TREC's format that finds a document of each query's disease."""
    ids = {path: [json.loads(line)["_id"] for line in path.read_text(encoding="utf-8").splitlines()]
           for path in (queries, queries.with_name("corpus.jsonl")) if path.is_file()}  # fmt: skip
    there = set(ids.get(queries.with_name("corpus.jsonl"), ()))
    hits = [(name, f"d{name[1:]}") for name in ids[queries]]
    rows = [f"{name} Q0 {other} 1 1.0 tag\n" for name, other in hits if not there or other in there]
    run.parent.mkdir(exist_ok=True)
    run.write_text("".join(rows), encoding="utf-8")


def test_the_guides_on_judging_run(clean):
    folder = clean.folder
    write_run(folder / "queries.jsonl", folder / "runs" / "lucene.trec")
    write_retrieval(folder / "my-benchmark")
    shutil.copy(ROOT / "tests" / "medteb_mteb" / "mar_table_9.csv", folder / "scores.csv")
    for model in range(6):
        for place, task in enumerate(("CMedQAv1-reranking", "MedTEBRetrieval", "MedTEBSTS")):
            write_result(folder / "results", f"a/{model}", task, 0.1 * (model + place % 2))
    triples = [{"query": "脚气怎么治", "positive": "脚气用抗真菌药膏治疗。"}]
    clean.rows("my/triples.jsonl", triples)
    (folder / "more").mkdir()
    pq.write_table(pa.Table.from_pylist(triples), folder / "more" / "pairs.parquet")
    clean.swapped |= {"model: deepseek-chat": "model: rule-words", "model: gpt-4o": "model: rule-generous"}
    clean.swapped["Qwen/Qwen3-32B"] = "rule-strict"
    clean.swapped["medteb audit my-benchmark audited"] = (
        "medteb audit my-benchmark audited --already-anonymous"
    )

    def seeded():
        text = (folder / "judges.yaml").read_text(encoding="utf-8")
        (folder / "judges-seed-43.yaml").write_text(f"seed: 43\n{text}", encoding="utf-8")

    def planned():
        """Queries with a field by which a sheet can be drawn, and no sheet of an earlier block."""
        for path in folder.glob("sheet*"):
            path.unlink()
        data = folder / "data" / "MedTEBRetrieval"
        queries = [json.loads(line) for line in (data / "queries.jsonl").read_text("utf-8").splitlines()]
        for number, query in enumerate(queries):
            query["department"] = "内科" if number % 2 else "外科"
        clean.rows("data/MedTEBRetrieval/queries.jsonl", queries)
        write_manifest(data, task="MedTEBRetrieval", name="clinic", version="1.0.0", licence="mit", counts={})

    clean.before |= {
        "medteb consensus": lambda: shutil.copy(folder / "judged" / "judgements.jsonl", folder),
        "medteb review import": lambda: fill(folder / "sheet.csv", ("li.csv", "wang.csv", "zhang.csv")),
        "medteb judge queries documents pools second": seeded,
        "medteb review plan": planned,
        "medteb review adjudicate": lambda: fill(folder / "sheet.csv", ("li.csv", "wang.csv")),
    }
    for step in EXECUTED["judging"]:
        clean.run(step)


def test_the_guides_on_whole_builds_run(clean):
    clean.rows("questions.jsonl", texts_of(ASKED, "q"))
    clean.rows("raw/documents/documents.jsonl", texts_of(ANSWERS, "d"))
    rows = [f"{row['_id']},{row['text']}" for row in texts_of(ASKED, "q")]
    clean.text("raw/queries.csv", "\n".join(["_id,question", *rows]) + "\n")
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((40, 8)).astype(np.float32)
    np.save(clean.folder / "vectors.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    url = clean.swapped["http://127.0.0.1:8900/v1"]
    for file, names in (
        ("judges", {"rule-words": "rule-words", "rule-strict": "rule-strict"}),
        (
            "panel",
            {name: f"rule-{name}" for name in ("words", "generous", "strict")},
        ),  # of examples/clinic/build.yaml
    ):
        judges = [f"{{name: {name}, model: {model}, base_url: {url}}}" for name, model in names.items()]
        clean.text(f"{file}.yaml", f"judges: [{', '.join(judges)}]\n")
    clean.text("llm.yaml", (clean.folder / "sorter.yaml").read_text(encoding="utf-8"))
    clean.text(
        "examples/clinic/build.yaml",
        clean.swap((ROOT / "examples" / "clinic" / "build.yaml").read_text(encoding="utf-8")),
    )
    for name in ("queries.jsonl", "documents.jsonl", "synonyms.tsv"):
        shutil.copy(clean.folder / name, clean.folder / "examples" / "clinic" / name)
    clean.swapped["MEDTEB_DATA=build/data"] = "MEDTEB_DATA=examples/clinic/build/data"
    clean.before["medteb edition extend"] = lambda: write_run(
        clean.folder / "examples/clinic/build/data/MedTEBRetrieval/queries.jsonl",
        clean.folder / "runs" / "new.trec",
    )
    clean.swapped |= {
        "built/build": "examples/clinic/build",
        "--judges judges.yaml --depth": "--judges panel.yaml --already-anonymous --depth",
        "extend data/MedTEBRetrieval": "extend examples/clinic/build/data/MedTEBRetrieval",
        "croissant data/MedTEBRetrieval": "croissant examples/clinic/build/data/MedTEBRetrieval",
    }
    clean.swapped["unique queries --kind queries"] = "unique diverse --kind queries --model mar-mini"
    for step in EXECUTED["building"]:
        clean.run(step)


def test_the_guides_on_training_sets_run(clean):
    models = {"qwen-plus": "rule-sorter", "gpt-4o": "rule-rewriter", "deepseek-chat": "rule-questions"}
    clean.swapped |= {"intfloat/multilingual-e5-base": "mar-mini"} | models
    clean.text("my-tasks.txt", "根据症状找到应去的科室\n根据疾病找到饮食建议\n根据药品找到用法用量\n")
    clean.command("medteb pool clean/queries clean/documents pools -r bm25 -r BAAI/bge-m3 --size 50")
    clean.before["medteb pool"] = lambda: write_retrieval(clean.folder / "data" / "MedTEBRetrieval")
    for step in EXECUTED["writing"]:
        clean.run(step)


def test_the_guides_on_scoring_run(workspace, make_folder, monkeypatch):
    make_folder("Retrieval", "my-clinic-faq")
    monkeypatch.setenv("MEDTEB_DATA", str(workspace.folder / "tasks"))
    for size in ("N_DOCUMENTS", "N_TRIPLES"):  # the real ones: tests/medteb_mteb/mini/test_edition.py
        monkeypatch.setattr(f"medteb_mteb.mini.train.{size}", 500)
    for kind in ("Retrieval", "Reranking", "STS"):
        folder = make_folder(kind, f"tasks/MedTEB{kind}")
        write_manifest(folder, task=f"MedTEB{kind}", name="mini", version="0.0.1", licence="mit", counts={})
    workspace.rows(
        "my-retrieval-folder/corpus.jsonl", [{"title": "", **row} for row in texts_of(ANSWERS, "d")]
    )
    workspace.rows("my-retrieval-folder/queries.jsonl", texts_of(ASKED, "q"))
    lines = [f"{row['_id']}\td{row['_id'][1:]}\t1\n" for row in texts_of(ASKED, "q")]
    workspace.text("my-retrieval-folder/qrels/test.tsv", "query-id\tcorpus-id\tscore\n" + "".join(lines))
    make_folder("Reranking", "my-reranking")
    save_cross_encoder(workspace.folder / "runs/judge", 1)
    workspace.swapped |= {"runs/my-mar/model": "mar-mini", "/data/medteb": "tasks", "/tmp/mini": "mini"}
    for step in EXECUTED["scoring"]:
        workspace.run(step)


def test_the_guides_on_training_data_run(workspace):
    rows = [
        {"query": f"{a}{b}怎么办", "positive": f"{a}{b}的处理：{b}{a}"}
        for a in "甲乙丙丁"
        for b in "头胸腹背"
    ]
    for name in ("pairs.jsonl", "my/faq.jsonl", "my/generated.jsonl", "data/pairs.jsonl"):
        workspace.rows(name, rows)
    workspace.swapped["runs/mar-mini/model"] = "mar-mini"
    for step in EXECUTED["training data"]:
        workspace.run(step)
    assert len(json.loads((workspace.folder / "mined" / "triples.jsonl").read_text().splitlines()[0])) >= 2
