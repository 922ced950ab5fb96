"""The task files for mteb: as generated, valid by mteb's own checks, with statistics by its own machinery."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import shutil
from pathlib import Path

import mteb
import pytest
import yaml
from mteb.abstasks.abstask import AbsTask

from medteb_mteb.curation.relatives.build import build_set
from medteb_mteb.tasks.cmirb import cmirb_sets
from medteb_mteb.tasks.nano import nano_names
from tests.conftest import DOCUMENTS, QRELS, QUERIES, write_jsonl
from tests.medteb_mteb.curation.relatives.raw_samples import WRITERS, write_relish
from tests.medteb_mteb.nano.sets import write_split

FOLDER = Path(__file__).resolve().parents[2] / "contrib" / "mteb"
FILES = sorted(path.relative_to(FOLDER / "tasks").as_posix() for path in FOLDER.glob("tasks/*/*/*.py"))
NAMES = {
    "cmirb_retrieval": {one.task for one in cmirb_sets() if not one.adapted_from},
    "nano_cmteb_retrieval": set(nano_names("NanoCMTEB")),
    "nano_medical_retrieval": set(nano_names("NanoMedical")),
    "nano_cmteb_reranking": set(nano_names("NanoCMTEB", "Reranking")),
    "nano_medical_reranking": set(nano_names("NanoMedical", "Reranking")),
    "relish_reranking": {"RELISHReranking"},
    "bio_asq_500_snippets_retrieval": {"BioASQ500SnippetsRetrieval"},
    "disease_ontology_retrieval": {"DiseaseOntologyRetrieval"},
    "med_quad_live_qa_retrieval": {"MedQuADLiveQARetrieval"},
    "pub_med_qa_500_retrieval": {"PubMedQA500Retrieval"},
}


def module(path: Path):
    spec = importlib.util.spec_from_file_location(f"contrib_{path.stem}", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def tasks_of(file: str) -> dict[str, type[AbsTask]]:
    members = vars(module(FOLDER / "tasks" / file)).values()
    classes = [one for one in members if isinstance(one, type) and issubclass(one, AbsTask)]
    return {one.metadata.name: one for one in classes if "metadata" in vars(one)}


@pytest.fixture(scope="module")
def made():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield module(FOLDER / "make_tasks.py")


def test_there_are_no_other_files(made):
    assert sorted(made.FILES) == FILES
    assert sorted(NAMES) == sorted(Path(file).stem for file in FILES)


@pytest.mark.parametrize("file", FILES)
def test_the_file_is_the_generated_one(made, file):
    pytest.importorskip("ruff", reason="ruff formats the files; install medteb[lint]")
    text = (made.TARGET / file).read_text("utf-8")
    assert text == made.FILES[file]()
    assert "medteb" not in text.casefold()


def test_the_statistics_are_of_tasks_with_a_file():
    folder = FOLDER / "descriptive_stats" / "Retrieval"
    built = {name for file in FILES if file.startswith("retrieval/eng/") for name in NAMES[Path(file).stem]}
    assert {path.stem for path in folder.glob("*.json")} == built
    for name in built:
        (statistics,) = json.loads((folder / f"{name}.json").read_text("utf-8")).values()
        assert (statistics["num_queries"], statistics["num_documents"]) == mteb.get_task(name).built_size


@pytest.mark.parametrize("file", FILES)
def test_mtebs_checks_of_metadata_pass(file):
    tasks = tasks_of(file)
    assert set(tasks) == NAMES[Path(file).stem]
    for name, task in tasks.items():
        metadata = type(task.metadata).model_validate(task.metadata.model_dump())
        metadata._validate_metadata()
        assert metadata.is_filled()
        assert metadata.intext_citation()
        assert metadata.type.lower() == file.partition("/")[0]
        keys = re.findall(r"^@\w+\{([^,]+),$", metadata.bibtex_citation, re.MULTILINE)
        assert keys == sorted(keys, key=str.lower)  # as the formatter of mteb's own test writes them
        assert task().metadata.name == task.__name__ == name


@pytest.mark.parametrize("file", FILES)
def test_citations_are_formatted_as_mtebs_own_test_expects(file):
    bibtexparser = pytest.importorskip("bibtexparser", reason="a dependency of mteb's tests")
    for task in tasks_of(file).values():
        parser = bibtexparser.bparser.BibTexParser(
            common_strings=True, ignore_nonstandard_types=False, interpolate_strings=False
        )
        writer = bibtexparser.bwriter.BibTexWriter()
        writer.indent, writer.add_trailing_comma = "  ", True
        citation = task.metadata.bibtex_citation.strip()
        assert writer.write(bibtexparser.loads(citation, parser)).strip() == citation


def write_card(folder: Path, files: list[tuple[str, str, str]]) -> Path:
    """A card that says which file is which split of which configuration."""
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": path}]} for name, split, path in files
    ]
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n", encoding="utf-8")
    return folder


def cmirb(data: Path) -> Path:
    folder = data / "MedExamRetrieval"
    write_jsonl(folder / "corpus.jsonl", [{"id": k, "text": t} for k, t in DOCUMENTS.items()])
    write_jsonl(folder / "queries.jsonl", [{"id": k, "text": t} for k, t in QUERIES.items()])
    rows = [{"q_id": q, "p_id": d, "score": s} for q, row in QRELS.items() for d, s in row.items()]
    write_jsonl(folder / "qrels" / "test.jsonl", rows)
    tables = [("corpus", "corpus", "corpus.jsonl"), ("queries", "queries", "queries.jsonl")]
    return write_card(folder, [("default", "test", "qrels/test.jsonl"), *tables])


def relish(data: Path) -> Path:
    folder = write_relish(data.parent / "published")
    build_set("RELISHReranking", folder, data)
    return write_card(folder, [("relish", "evaluation", "evaluation.jsonl")])


def built(name: str):
    """Return a function that builds a set from samples of its raw files and copies it, as for an upload."""

    def write(data: Path) -> Path:
        WRITERS[name](data.parent / "published")
        edition, _ = build_set(name, data.parent / "published", data)
        copy = Path(shutil.copytree(edition.path, data.parent / "uploaded"))
        with (copy / "qrels" / "test.tsv").open(encoding="utf-8", newline="") as file:
            write_jsonl(copy / "qrels.jsonl", list(csv.DictReader(file, delimiter="\t")))
        tables = [("corpus", "test", "corpus.jsonl"), ("queries", "test", "queries.jsonl")]
        return write_card(copy, [("default", "test", "qrels.jsonl"), *tables])

    return write


#: A task of each file, its content in the published layout, and the numbers of queries, documents, positives.
CASES = {
    "retrieval/zho/cmirb_retrieval.py": ("MedExamRetrieval", cmirb, (3, 6, 4)),
    "retrieval/zho/nano_cmteb_retrieval.py": (
        "NanoCMTEBMedicalRetrieval",
        lambda data: write_split(data / "NanoCMTEB", "medical"),
        (3, 120, 4),
    ),
    "retrieval/multilingual/nano_medical_retrieval.py": (
        "NanoMedicalSciFactPLRetrieval",
        lambda data: write_split(data / "NanoMedical", "NanoSciFactPL"),
        (3, 120, 4),
    ),
    "reranking/zho/nano_cmteb_reranking.py": (
        "NanoCMTEBMedicalReranking",
        lambda data: write_split(data / "NanoCMTEB", "medical"),
        (3, 120, 4),
    ),
    "reranking/multilingual/nano_medical_reranking.py": (
        "NanoMedicalCUREv1Reranking",
        lambda data: write_split(data / "NanoMedical", "NanoCUREv1"),
        (3, 120, 4),
    ),
    "reranking/eng/relish_reranking.py": ("RELISHReranking", relish, (2, 3, 2)),
    **{
        f"retrieval/eng/{file}_retrieval.py": (name, built(name), numbers)
        for file, name, numbers in (
            ("bio_asq_500_snippets", "BioASQ500SnippetsRetrieval", (2, 3, 2)),
            ("disease_ontology", "DiseaseOntologyRetrieval", (2, 2, 2)),
            ("med_quad_live_qa", "MedQuADLiveQARetrieval", (2, 4, 2)),
            ("pub_med_qa_500", "PubMedQA500Retrieval", (2, 4, 2)),
        )
    },
}
#: Candidates of all queries; the third query of the Nano sets has a safeguard.
CANDIDATES = {"NanoCMTEBMedicalReranking": 301, "NanoMedicalCUREv1Reranking": 301, "RELISHReranking": 4}


@pytest.fixture
def contributed(request, tmp_path, monkeypatch, datasets_cache) -> AbsTask:
    """A task of the file that loads made-up content in the published layout, by its own code."""
    name, write, _ = CASES[request.param]
    monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
    folder = write(tmp_path / "data")
    task = tasks_of(request.param)[name]()
    dataset = task.metadata.dataset | {"path": str(folder), "revision": "main"}
    monkeypatch.setattr(task.metadata, "dataset", dataset)
    return task


#: NanoMedical's files have the code of NanoCMTEB's, those of built sets have metadata alone.
WITH_OWN_CODE = [file for file in FILES if "nano_medical" not in file and "retrieval/eng" not in file]


@pytest.mark.thorough(but=WITH_OWN_CODE)
@pytest.mark.parametrize("contributed", FILES, indirect=True)
def test_mtebs_machinery_computes_the_statistics(contributed, tmp_path, monkeypatch):
    """On made-up content: those of the published data need the Hub."""
    target = tmp_path / "statistics.json"
    monkeypatch.setattr(type(contributed.metadata), "descriptive_stat_path", target)
    contributed.calculate_descriptive_statistics()
    (statistics,) = json.loads(target.read_text("utf-8")).values()
    sizes = {name: numbers for name, _, numbers in CASES.values()}
    positives = statistics["relevant_docs_statistics"]["num_relevant_docs"]
    assert (statistics["num_queries"], statistics["num_documents"], positives) == sizes[
        contributed.metadata.name
    ]
    candidates = statistics["top_ranked_statistics"] or {}
    assert candidates.get("num_top_ranked") == CANDIDATES.get(contributed.metadata.name)


@pytest.mark.thorough
@pytest.mark.parametrize("contributed", FILES, indirect=True)
def test_scores_are_those_of_this_packages_task(contributed):
    own = mteb.get_task(contributed.metadata.name)
    assert type(own).__module__.startswith("medteb_mteb.")
    encoder = mteb.get_model("mteb/baseline-random-encoder")
    scores = []
    for task in (contributed, own):
        (split,) = task.metadata.eval_splits
        scores.append(task.evaluate(encoder, split, encode_kwargs={"batch_size": 32})["default"])
    theirs, ours = scores
    measures = [name for name in theirs if name != "hf_subset" and "nauc" not in name]
    assert {"ndcg_at_10", "map_at_1000", "recall_at_100", "main_score"} <= set(measures)
    assert {name: ours[name] for name in measures} == pytest.approx({name: theirs[name] for name in measures})
    assert 0 < theirs["recall_at_1000"] <= 1
