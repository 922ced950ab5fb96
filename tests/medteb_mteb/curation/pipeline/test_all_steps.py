"""All steps in one build: inputs fit, forecasts hold, and later steps can read the outputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import rule_judges
import yaml

from mar_st.data import read_source
from mar_st.recipes.load import load_recipe
from mar_st.recipes.schema import Data
from medteb_mteb.curation import pipeline as building
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pipeline.registry import registered
from medteb_mteb.curation.pipeline.resolve import resolve
from medteb_mteb.curation.pipeline.schema import load_pipeline
from medteb_mteb.curation.training.rows import TEST_QUERY

BOTH = {"queries": "queries", "documents": "documents"}
EDITION = {"edition": "clinic", "licence": "mit", "test": 0.4}
SMALL = {**EDITION, "small": True}
STEPS = [
    {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
    {"step": "anonymize", "name": "anonymous", "in": "documents.jsonl"},
    {"step": "dedup", "in": "anonymous", "threshold": 0.95},
    {"step": "diversify", "name": "documents", "in": "dedup", "kind": "documents", "model": "encoder",
     "seed_size": 10, "threshold": 0.999},
    {"step": "pool", **BOTH, "retrievers": ["bm25", "encoder"], "size": 8},
    {"step": "judge", **BOTH, "pools": "pool"},
    {"step": "consensus", "name": "labels", "in": "judge"},
    {"step": "review", "labels": "labels", **BOTH, "size": 10},
    {"step": "assemble", "labels": "labels", **BOTH, **SMALL},
    {"step": "sts", "dictionary": "synonyms.tsv", "queries": "queries", **EDITION},
    {"step": "triples", **BOTH, "pools": "pool", "depth": 8, "against": ["held-out.jsonl"]},
    {"step": "pairs", "queries": ["queries"], "documents": ["documents"], "shares": {"documents": 0.5}},
    {"step": "synthesize-queries", "name": "asked", "documents": "documents", "shortest": 5,
     "per_document": 2},
    {"step": "synthesize-tasks", "name": "tasks", "tasks": 3, "pairs_per_task": 2},
    {"step": "round-trip", "pairs": "asked", "retriever": "bm25", "negatives": 1, "depth": 20},
]  # fmt: skip


@pytest.fixture
def every(write, dictionary, tmp_path, encoder_folder):
    """Writes the pipeline of all steps, and what it reads."""
    dictionary(9)
    (tmp_path / "held-out.jsonl").write_text('{"_id": "t1", "text": "失眠怎么治疗"}\n', encoding="utf-8")
    shutil.copytree(encoder_folder, tmp_path / "encoder")

    def call(url, **content):
        price = {"price_in": 1.0, "price_out": 4.0}
        llms = {
            model: {"name": model, "model": f"rule-{model}", "base_url": url, **price}
            for model in ("rewriter", "sorter", "questions")
        }
        llm_of_step = {"sts": "rewriter", "triples": "sorter"}
        steps = [{**s, "llm": llms[llm_of_step[s["step"]]]} if s["step"] in llm_of_step else s for s in STEPS]
        return write(url, steps=steps, judge=price, llm=llms["questions"], **content)

    return call


def sources(folder):
    """All training sets of a build, read as `mar train` reads them."""
    data = folder / "data" / "train"
    paths = {
        "triples": folder / "triples",
        "tasks": folder / "tasks",
        "asked": folder / "asked" / "pairs.jsonl",
    }
    paths |= {"kept": folder / "round-trip" / "triples.jsonl", "sts": data / "sts.jsonl"}
    paths |= {"assembled": data / "triples.jsonl"}
    return {
        name: read_source(Data(name=name, path=str(path), prompt=""), 0).triples
        for name, path in paths.items()
    }


def test_every_step_is_in_this_build():
    assert set(registered()) == {step["step"] for step in STEPS}


def test_all_steps_run_in_one_build(every, quiet, endpoint, tmp_path, medteb, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rule_judges.serving(endpoint) as url:
        path = every(url)
        first = building.forecast(path).to_json()
        assert endpoint.requests == 0
        assert not (tmp_path / "build").exists()
        report = quiet(path)
        assert report.complete
        requests = endpoint.requests
        # The estimates are upper bounds of the requests.
        assert 0 < requests <= first["requests"]
    names = {step.name: step.result for step in report.steps}
    read = sources(tmp_path / "build")
    assert {name: len(rows) > 0 for name, rows in read.items()} == dict.fromkeys(read, True)
    assert len(read["triples"]) == names["triples"]["counts"]["triples"]
    assert names["triples"]["dropped"][TEST_QUERY] > 1  # that of the file, and those of both editions
    assert report.leakage["leaks"] == 0
    aligned = read_source(
        Data(name="d", path=str(tmp_path / "build/pairs"), form="texts", role="document"), 0
    )
    assert len(aligned.texts) == names["pairs"]["kept"]["document"]
    # The server is gone: everything is kept, and a forecast asks for nothing.
    assert {step.fate for step in quiet(path).steps} == {"kept"}
    after = building.forecast(path).to_json()
    assert (after["requests"], after["cost"], after["exact"]) == (0, 0, True)
    data = tmp_path / "build" / "data"
    assert {task.name for task in data.iterdir()} == {
        "MedTEBRetrieval",
        "MedTEBReranking",
        "MedTEBSTS",
        "train",
    }
    for task in ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS"):
        code, out, err = medteb("run", "--data", data / task, "-m", "bm25-char-bigram", "-q", "--json")
        assert code == 0, err
        assert json.loads(out)["errors"] == []
    _, out, _ = medteb("validate", data / "MedTEBRetrieval", "--build", tmp_path / "build", "--json")
    points = {row["check"]: row for row in json.loads(out)["findings"]}
    whole = ("files", "rows", "ids", "positives")
    assert {points[check]["verdict"] for check in whole} == {"ok"}
    for check in ("judged@10", "pool bias", "agreement", "leakage"):
        assert points[check]["verdict"] != "not known", points[check]
    assert points["leakage"]["numbers"]["queries near a training text"] == 0


def test_a_writer_is_needed(write):
    with pytest.raises(BuildError, match="Step 'tasks' needs an LLM"):
        building.build(write(steps=[{"step": "synthesize-tasks", "name": "tasks"}]))


def test_an_llm_may_be_in_a_file_of_its_own(write, server, quiet, tmp_path):
    llm = {"llm": {"name": "w", "model": "rule-questions", "base_url": server}}
    (tmp_path / "llm.yaml").write_text(yaml.safe_dump(llm))
    steps = [{"step": "synthesize-tasks", "name": "tasks", "tasks": 2, "pairs_per_task": 2}]
    assert quiet(write(server, steps=steps, llm="llm.yaml")).complete


@pytest.mark.thorough
def test_the_example_builds_as_it_stands(endpoint, quiet, tmp_path):
    """`examples/clinic`, but for the address of the server."""
    folder = tmp_path / "clinic"
    shutil.copytree(
        Path(rule_judges.__file__).parent / "clinic", folder, ignore=shutil.ignore_patterns("build")
    )
    path = folder / "build.yaml"
    with rule_judges.serving(endpoint) as url:
        path.write_text(path.read_text("utf-8").replace("http://127.0.0.1:8900/v1", url), encoding="utf-8")
        report = quiet(path)
    assert report.complete
    assert {"assemble", "sts", "triples", "round-trip"} <= {step.name for step in report.steps}
    # No training set has a query of a test, though nearly all are made of the same queries.
    leakage = json.loads((folder / "build" / "leakage.json").read_text("utf-8"))
    assert leakage == report.leakage
    assert leakage["tests"] > 30
    assert leakage["leaks"] == 0, leakage
    assert set(leakage["training"]) == {"assemble", "sts", "triples", "pairs", "asked", "round-trip"}
    assert leakage["training"]["pairs"]["queries"] > 0
    recipe = load_recipe(str(folder / "train.yaml"))
    for entry in recipe.data:
        path = str(tmp_path / Path(entry.path).relative_to("examples"))
        source = read_source(entry.model_copy(update={"path": path}), recipe.seed)
        assert len(source.triples or source.texts) > 50
    counts = {step.name: step.result for step in report.steps}["pairs"]
    assert counts["sources"][0]["dropped"][TEST_QUERY] > 0


def test_the_example_with_the_step_of_its_comment_is_valid(tmp_path):
    folder = tmp_path / "clinic"
    shutil.copytree(
        Path(rule_judges.__file__).parent / "clinic", folder, ignore=shutil.ignore_patterns("build")
    )
    path = folder / "build.yaml"
    text = path.read_text("utf-8")
    for old, new in (("dedup, name: documents,", "dedup,"), ("# - {step: diversify", "- {step: diversify")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    pipeline = load_pipeline(path)
    resolve(pipeline, folder)
    assert [step.name for step in pipeline.steps][2:4] == ["dedup", "documents"]


@pytest.mark.thorough
def test_a_build_that_trains_on_its_test_fails(write, server, tmp_path, medteb):
    """Texts are used for alignment before the test is drawn; the test is kept out nevertheless."""
    steps = [
        {"step": "pairs", "queries": ["queries.jsonl"]},
        {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
        {"step": "anonymize", "name": "documents", "in": "documents.jsonl"},
        {"step": "pool", **BOTH, "retrievers": ["bm25"], "size": 8},
        {"step": "judge", **BOTH, "pools": "pool"},
        {"step": "consensus", "name": "labels", "in": "judge", "rule": "majority"},
        {"step": "assemble", "labels": "labels", **BOTH, **SMALL, "leaks": "keep"},
    ]
    path = write(server, steps=steps)
    code, _, err = medteb("build", path, "-q")
    assert code == 1
    assert "are near-duplicates of the build's tests (pairs " in err
    leakage = json.loads((tmp_path / "build" / "leakage.json").read_text("utf-8"))
    assert leakage["training"]["pairs"]["leaks"] == leakage["leaks"] > 0
    assert leakage["training"]["assemble"]["leaks"] == 0
    steps[-1]["leaks"] = "drop"
    steps[-1]["name"] = "dropped"
    code, _, err = medteb("build", write(server, steps=steps, out="other"), "-q")
    assert code == 2
    assert "The test is empty" in err


@pytest.mark.thorough
def test_damaged_journals_are_repaired_and_little_is_asked_again(every, quiet, endpoint, tmp_path, medteb):
    with rule_judges.serving(endpoint) as url:
        path = every(url)
        quiet(path, until="judge")
        requests = endpoint.requests
        journal = tmp_path / "build" / "judgements.sqlite"
        content = bytearray(journal.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 300] = bytes(300)
        journal.write_bytes(content)
        shutil.rmtree(tmp_path / "build" / "judge")
        code, _, err = medteb("build", path, "--until", "judge", "-q")
        if code == 0:
            pytest.skip("the damage hit no page that is read")
        assert code == 2
        assert "--repair" in err
        code, _, err = medteb("build", path, "--until", "judge", "-q", "--repair")
        assert code == 0, err
    assert "judgements and" in err
    assert endpoint.requests - requests < requests
