"""Writes the task files as they would stand in mteb, from this package's tables and the files in `heads/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from string import Template
from typing import Any

import mteb

from medteb_mteb.tasks.tables import cite, table

HERE = Path(__file__).parent
#: Folder whose content stands in `mteb/tasks/` of a checkout.
TARGET = HERE / "tasks"
FIELDS = (
    "name", "description", "reference", "dataset", "type", "category", "modalities", "eval_splits",
    "eval_langs", "main_score", "date", "domains", "task_subtypes", "license", "annotations_creators",
    "dialect", "sample_creation", "prompt", "adapted_from",
)  # fmt: skip
NANO = {
    "NanoCMTEB": ("zho/nano_cmteb", "eight Chinese sets"),
    "NanoMedical": ("multilingual/nano_medical", "ten medical sets in four languages"),
}
#: Sets that are built from files on GitHub and not on the Hub yet: name of the file, first line.
BUILT = {
    "BioASQ500SnippetsRetrieval": (
        "bio_asq_500_snippets_retrieval",
        "BEIR's 500 BioASQ topics over documents cut to the snippets that experts marked.",
    ),
    "DiseaseOntologyRetrieval": (
        "disease_ontology_retrieval",
        "Names of diseases to definitions, in the place of MeSH.",
    ),
    "MedQuADLiveQARetrieval": (
        "med_quad_live_qa_retrieval",
        "Answers to consumer health questions with grades by people, graded nDCG@10.",
    ),
    "PubMedQA500Retrieval": (
        "pub_med_qa_500_retrieval",
        "The test questions of PubMedQA over abstracts without conclusions.",
    ),
}
#: mteb's task on another configuration of RELISH's data set: its revision, domains and citation.
SIBLING = "SciRepEvalMeSHDescriptorsClassification"


def head(name: str, **values: str) -> str:
    """Return the beginning of a file."""
    return Template((HERE / "heads" / f"{name}.txt").read_text("utf-8")).safe_substitute(values)


def bibtex(*citations: str | None) -> str:
    """Return citations as a raw string."""
    return f'r"""{cite(*citations)}"""'


def task_class(base: str, name: str, citation: str = "", **changed: Any) -> str:
    """Return a class with the metadata of a task; fields without a value are left out.

    Args:
        base: Name of the base class.
        name: Name of the task.
        citation: Source of the citation; default the task's own.
        **changed: Fields with other values.
    """
    own = mteb.get_task(name).metadata
    fields = own.model_dump() | changed
    lines = ["", "", f"class {name}({base}):", "    metadata = TaskMetadata("]
    lines += [f"        {field}={fields[field]!r}," for field in FIELDS if fields.get(field) is not None]
    citation = citation or bibtex(own.bibtex_citation)
    return "\n".join([*lines, f"        bibtex_citation={citation},", "    )", ""])


def cmirb() -> str:
    """Return CMIRB's file, without the sets whose data mteb has."""
    rows = [row for row in table("cmirb")["sets"] if not row["adapted_from"]]
    classes = [task_class("_CMIRBRetrieval", row["task"], "_BIBTEX") for row in rows]
    return head("cmirb", citation=bibtex("cmirb")) + "".join(classes)


def nano(of: str, kind: str) -> str:
    """Return the file of a Nano set: retrieval, or reranking of the hybrid candidates and safeguards."""
    stems = [row["stem"] for row in table("nano")[of]["splits"].values()]
    classes = [task_class(f"_{of}{kind}", f"{of}{stem}{kind}") for stem in stems]
    return head(f"nano_{kind.lower()}", set=of, about=NANO[of][1]) + "".join(classes)


def relish() -> str:
    """Return RELISH's file."""
    sibling, name = mteb.get_task(SIBLING).metadata, "RELISHReranking"
    about = mteb.get_task(name).metadata.description
    dataset = {**sibling.dataset, "name": "relish"}
    made = task_class(
        "AbsTaskRetrieval",
        name,
        bibtex(sibling.bibtex_citation),
        description=f"{about} RELISH as published in SciRepEval.",
        reference=sibling.reference,
        dataset={key: dataset[key] for key in ("path", "name", "revision")},
        eval_splits=["evaluation"],
        domains=sibling.domains,
    )
    return head("relish") + made + head("relish_loading")


def built(name: str) -> str:
    """Return the file of a set that is not uploaded yet."""
    dataset = {"path": f"mteb/{name}", "revision": "main"}
    return head("built", title=BUILT[name][1]) + task_class("AbsTaskRetrieval", name, dataset=dataset)


def all_files() -> dict[str, str]:
    """Return the files by name, formatted as mteb's."""
    files = {"retrieval/zho/cmirb_retrieval.py": cmirb(), "reranking/eng/relish_reranking.py": relish()}
    for of, (place, _) in NANO.items():
        for kind in ("Retrieval", "Reranking"):
            files[f"{kind.lower()}/{place}_{kind.lower()}.py"] = nano(of, kind)
    files |= {f"retrieval/eng/{file}.py": built(name) for name, (file, _) in BUILT.items()}
    return {name: formatted(content) for name, content in files.items()}


def formatted(source: str) -> str:
    """Return Python source as ruff formats it in mteb."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "88", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    for name, content in all_files().items():
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
