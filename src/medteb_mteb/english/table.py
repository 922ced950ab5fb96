"""The 51 tasks of English MedTEB, the published results, and the paper's averages.

The code of the authors defines more tasks; which 51 are the paper's follows from its averages, which this
module computes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MAIN_METRICS",
    "PREPRINT_DAYS",
    "TYPES",
    "Averages",
    "EnglishTask",
    "averages",
    "english_tasks",
    "published_results",
]

#: Types of tasks as the paper abbreviates them, and in mteb's words.
TYPES = {"CLS": "Classification", "CLU": "Clustering", "PAIR": "PairClassification", "RET": "Retrieval"}
#: Scores that the paper reports: macro F1, V-measure, the best F1 of the similarities, nDCG@10.
MAIN_METRICS = {"CLS": "f1", "CLU": "v_measure", "PAIR": "max_f1", "RET": "ndcg_at_10"}


#: Sources with an API by the names of `medteb build fetch`.
_APIS = {
    "ClinicalTrials.gov": "clinical-trials",
    "PMC": "pmc",
    "PubMed": "pubmed",
    "Wikipedia": "wikipedia",
    "bioRxiv": "biorxiv",
    "medRxiv": "medrxiv",
}

#: Licence or terms that each source states for its texts.
_LICENCES = {
    "ClinicalTrials.gov": "https://clinicaltrials.gov/about-site/terms-conditions",
    "MIMIC-IV": "PhysioNet Credentialed Health Data License 1.5.0",
    "MedMCQA": "mit",
    "MedQA": "mit",
    "MedQuAD": "cc-by-4.0",
    "PMC": "not specified",
    "PubMed": "not specified",
    "Wikipedia": "cc-by-sa-4.0",
    "bioRxiv": "each preprint has its own",
    "medRxiv": "each preprint has its own",
}


#: First and last day of the preprints, as published; the dates of the other texts are not stated.
PREPRINT_DAYS = ("2018-01-01", "2022-12-20")


@dataclass(frozen=True)
class EnglishTask:
    """A task of the paper.

    Attributes:
        number: Number in the list of 51 tasks.
        name: Exact name, which is also the name of its CSV file.
        type: `CLS`, `CLU`, `PAIR` or `RET`.
        source: Source of its texts.
        needs: Requirement for building its data as published, see `medteb_mteb.tasks.needs`.
    """

    number: int
    name: str
    type: str
    source: str
    needs: str

    @property
    def api(self) -> str:
        """Return the name of the source for `medteb build fetch`; empty for a source without an API."""
        return _APIS.get(self.source, "")

    @property
    def licence(self) -> str:
        """Return the licence or terms that the source states."""
        return _LICENCES[self.source]

    @property
    def annotations(self) -> Literal["LM-generated", "derived"]:
        """Return the origin of the labels in mteb's words; of MedQuAD, the LLM writes only documents."""
        return "LM-generated" if self.needs == "an LLM" and self.source != "MedQuAD" else "derived"

    @property
    def date(self) -> tuple[str, str] | None:
        """Return the first and last day of the texts; None if they are not stated."""
        return PREPRINT_DAYS if self.source in ("bioRxiv", "medRxiv") else None


@dataclass(frozen=True)
class Averages:
    """Averages as published.

    Attributes:
        types: Mean by type of task.
        sources: Mean by source.
        by_type: Mean of the means by type.
        overall: Mean over all tasks.
    """

    types: Mapping[str, float]
    sources: Mapping[str, float]
    by_type: float
    overall: float


@lru_cache(maxsize=1)
def _published() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text("utf-8"))
    return content


@lru_cache(maxsize=1)
def english_tasks() -> Mapping[str, EnglishTask]:
    """Return the 51 tasks by name, in the paper's order."""
    return {row["name"]: EnglishTask(**row) for row in _published()["tasks"]}


def published_results() -> dict[str, Averages]:
    """Return the paper's tables IV and V by model: means by type and source, and both averages as printed."""
    content = _published()
    return {
        model: Averages(
            {kind: row[kind] for kind in TYPES}, content["sources"][model], row["by_type"], row["overall"]
        )
        for model, row in content["types"].items()
    }


def averages(scores: Mapping[str, float]) -> Averages:
    """Return the paper's averages of the scores of all 51 tasks.

    Args:
        scores: Main score by name of the task.

    Raises:
        ValueError: A task is missing, or is not one of the 51.
    """
    tasks = english_tasks()
    if wrong := sorted(set(tasks) ^ set(scores)):
        missing = [name for name in wrong if name in tasks]
        what = f"{len(missing)} of 51 tasks have no score" if missing else "it is not one of the 51 tasks"
        raise ValueError(f"The averages are those of all tasks; {what} (such as {(missing or wrong)[0]}).")

    def means(key: str) -> dict[str, float]:
        groups: dict[str, list[float]] = {}
        for task in tasks.values():
            groups.setdefault(getattr(task, key), []).append(scores[task.name])
        return {name: fmean(values) for name, values in groups.items()}

    types = means("type")
    return Averages(types, means("source"), fmean(types.values()), fmean(scores.values()))
