"""Code blocks of the pages on benchmarks, executed on made-up raw files in the published layouts."""

from __future__ import annotations

import shutil

import pytest

from mar_st.model.names import packaged_folder
from medteb_mteb.curation.relatives.mimic import DIAGNOSES
from medteb_mteb.english.snapshot import FOLDER
from medteb_mteb.nano.table import published_sets
from medteb_mteb.tasks.cmirb import cmirb_sets
from tests.docs.blocks import EXECUTED, ROOT
from tests.docs.conftest import load
from tests.medteb_mteb.curation.relatives import raw_samples
from tests.medteb_mteb.curation.relatives.api_server import Apis, serving
from tests.medteb_mteb.curation.relatives.written_texts import write
from tests.medteb_mteb.english.snapshots import write_snapshot
from tests.medteb_mteb.nano.sets import write_set
from tests.medteb_mteb.tasks.published_layouts import write_published, write_pushed

ONTOLOGY = "DiseaseOntologyRetrieval"


@pytest.fixture
def english(workspace):
    """Raw files of all sources, servers in the place of the public ones and of an LLM, and three models."""
    load(ROOT / "examples/rule_judges.py")
    load(ROOT / "tests/medteb_mteb/curation/judge/fault_server.py")
    server = load(ROOT / "tests/medteb_mteb/curation/llm_server.py")
    folder = workspace.folder
    raw_samples.write_medquad(folder / "raw/liveqa", packed=False)
    for name in ("medmcqa", "medqa"):
        raw_samples.write_exams(folder / "raw/mirage" / name)
    cancers = [name for some in DIAGNOSES["specific_Cancer_Types"].values() for name in some]
    notes = [
        raw_samples.note_of(
            Chief_Complaint="pain", History_of_Present_Illness=f"Ill, day {day}.", Discharge_Diagnosis=name
        )
        for day, name in enumerate(cancers)
    ]
    raw_samples.write_notes(folder / "physionet", notes)
    for name in ("mar-zh", "multilingual-e5-small-zh", "models/mine"):
        shutil.copytree(packaged_folder(), folder / name)
    with serving(Apis()) as apis, server.serving(write) as llm:
        workspace.text("llm.yaml", f"llm: {{name: writer, model: writer, base_url: {llm}}}\n")
        workspace.swapped["build fetch"] = f"build fetch --address {apis.url} --per-second 100"
        yield workspace


def test_english_sets_are_built(english):
    task = "pairclassification_wiki_diseases_dataset"
    english.before[f"medteb build relatives {task}"] = lambda: english.command(
        f"medteb build fetch wikipedia raw/wikipedia -t {task}"
    )
    for step in EXECUTED["English sets"]:
        english.run(step)
    assert len(list((english.folder / "data" / FOLDER).glob("*.csv"))) == 9


@pytest.mark.slow
def test_english_sets_are_scored(english):
    folder = english.folder

    def built():
        for name in ("BioASQ500SnippetsRetrieval", "PubMedQA500Retrieval", "BIOSSES", ONTOLOGY):
            raw_samples.WRITERS[name](folder / "raw" / name)
            english.command(f"medteb build relatives {name} raw/{name} data")
        english.run("benchmarks/english.md:1")

    def drawn():
        """Data for figures, with enough texts to draw."""
        english.patch.setenv("MEDTEB_DATA", str(folder / "figures"))
        write_snapshot(folder / "figures", ["clustering_wiki_disease_by_system_dataset"])
        shutil.copytree(folder / "data" / ONTOLOGY, folder / "figures" / ONTOLOGY)

    english.before |= {"MEDTEB_DATA=data medteb run -m": built, "medteb report sources": drawn}
    for step in EXECUTED["English scores"]:
        english.run(step)
    for figure in ("sources", "time", "tsne", "similarities"):
        assert (folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_the_page_on_chinese_sets_runs(workspace, make_folder, monkeypatch):
    for one in cmirb_sets():
        write_published(workspace.folder / "data" / one.task)
    for name in ("CMedQAv1-reranking", "CMedQAv2-reranking"):
        write_pushed(workspace.folder / "data" / name, "test", reranking=True)
    for name in ("CmedqaRetrieval", "MedicalRetrieval", "CovidRetrieval"):
        write_pushed(workspace.folder / "data" / name, "dev", reranking=False)
    monkeypatch.setenv("MEDTEB_DATA", "data")  # the first command reads the copies, too
    make_folder("Retrieval", "FOLDER")
    for name in ("mar-zh", "multilingual-e5-small-zh"):
        shutil.copytree(packaged_folder(), workspace.folder / name)
    for step in EXECUTED["Chinese sets"]:
        workspace.run(step)


@pytest.mark.slow
def test_the_page_on_nano_sets_runs(workspace):
    (nano,) = (nano for name, nano in published_sets().items() if name == "NanoCMTEB")
    write_set(workspace.folder / "data/NanoCMTEB", list(nano.splits), documents=12)
    for step in EXECUTED["Nano sets"]:
        workspace.run(step)
