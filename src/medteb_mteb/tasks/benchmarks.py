"""The benchmarks: MedTEB, public Chinese sets, the Nano sets, and English ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import mteb
from mteb.benchmarks.benchmark import Benchmark, BenchmarkAggregation

from medteb_mteb.editions import DATA_VARIABLE
from medteb_mteb.english.table import TYPES, english_tasks
from medteb_mteb.tasks import cmirb, english, nano, relatives
from medteb_mteb.tasks._edition_task import CITATION, REFERENCE
from medteb_mteb.tasks.cmirb import cmirb_sets
from medteb_mteb.tasks.nano import nano_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mteb.abstasks.abstask import AbsTask

__all__ = ["BENCHMARKS", "MEDTEB_CMN_MINI", "MEDTEB_CMN_V1", "EditionBenchmark"]

# In this order: mteb saves each result as it goes and stops at the first task that fails, and only the last
# two need a network.
PACKAGED_TASKS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")
CMEDQA_TASKS = ("CMedQAv1-reranking", "CMedQAv2-reranking")
MTEB_RETRIEVAL = ("CmedqaRetrieval", "MedicalRetrieval", "CovidRetrieval")


class EditionBenchmark(Benchmark):
    """A benchmark whose tasks are constructed when asked for, so that they follow ``MEDTEB_DATA``.

    Attributes:
        task_names: Names of its tasks.
        averages: Averages that its paper reports in addition to the plain mean: groups of tasks by name. An
            average is the mean of the means of its groups.
    """

    def __init__(
        self,
        *,
        task_names: Sequence[str],
        averages: Mapping[str, Sequence[Sequence[str]]] | None = None,
        **fields: Any,
    ) -> None:
        self.task_names = tuple(task_names)
        self.averages = dict(averages or {})
        self._made: tuple[str | None, Sequence[AbsTask]] | None = None
        super().__init__(tasks=(), **fields)

    @property
    def tasks(self) -> Sequence[AbsTask]:
        """Return the tasks; the same objects until ``MEDTEB_DATA`` changes."""
        root = os.environ.get(DATA_VARIABLE)
        if self._made is None or self._made[0] != root:
            self._made = (root, mteb.get_tasks(tasks=list(self.task_names)))
        return self._made[1]

    @tasks.setter
    def tasks(self, tasks: Sequence[AbsTask]) -> None:
        # The dataclass assigns its field, and `available-benchmarks` a sorted copy.
        if tasks:
            self._made = (os.environ.get(DATA_VARIABLE), tasks)


MEDTEB_CMN_V1 = EditionBenchmark(
    name="MedTEB(cmn, v1)",
    display_name="Chinese medical",
    task_names=(*PACKAGED_TASKS, *CMEDQA_TASKS),
    description=(
        "Chinese medical text retrieval: retrieval, reranking and synonym STS, with CMedQA v1 and v2 "
        "reranking; the score is the plain mean of the five. The three MedTEB tasks are scored on the "
        "active edition, by default the packaged synthetic `mini` edition: compare scores only where the "
        "dataset revisions agree, and never with the published ones, whose data are closed."
    ),
    reference=REFERENCE,
    citation=CITATION,
    aggregations=(BenchmarkAggregation.MEAN_TASK, BenchmarkAggregation.TASK_TYPES),
)

MEDTEB_CMN_MINI = EditionBenchmark(
    name="MedTEB(cmn, mini)",
    display_name="Chinese medical, packaged tasks",
    task_names=PACKAGED_TASKS,
    description=(
        "The three tasks of MedTEB(cmn, v1) whose data comes with medteb, so no network is needed. The "
        "packaged `mini` edition is synthetic: for smoke tests and teaching, not for ranking models."
    ),
    reference=REFERENCE,
    citation=CITATION,
    aggregations=(BenchmarkAggregation.MEAN_TASK, BenchmarkAggregation.TASK_TYPES),
)


def _nano(name: str, suffix: str, what: str) -> EditionBenchmark:
    return EditionBenchmark(
        name=name if suffix == "Retrieval" else f"{name}(reranking)",
        task_names=nano_names(name, suffix),
        description=(
            f"{name} of HAKARI-Bench, {what}: the plain mean of nDCG@10 over its splits. Compare scores only "
            "where the dataset revisions agree. The published set is on the Hub; a copy in "
            f"$MEDTEB_DATA/{name} is read instead."
        ),
        reference=nano.REFERENCE,
        citation=nano.CITATION,
        aggregations=(BenchmarkAggregation.MEAN_TASK,),
    )


NANO_CMTEB = _nano("NanoCMTEB", "Retrieval", "eight Chinese retrieval tasks")
NANO_CMTEB_RERANKING = _nano("NanoCMTEB", "Reranking", "hybrid candidates with their safeguards")
NANO_MEDICAL = _nano("NanoMedical", "Retrieval", "ten medical retrieval tasks in four languages")
NANO_MEDICAL_RERANKING = _nano("NanoMedical", "Reranking", "hybrid candidates with their safeguards")

CMIRB = EditionBenchmark(
    name="CMIRB",
    display_name="Chinese medical retrieval (CMIRB)",
    task_names=[one.task for one in cmirb_sets()],
    description=(
        "The ten sets of CMIRB, a public Chinese medical retrieval benchmark; the score is the plain mean of "
        "nDCG@10, as in its published table. The labels of most sets were made or filtered by one LLM."
    ),
    reference=cmirb.REFERENCE,
    citation=cmirb.CITATION,
    aggregations=(BenchmarkAggregation.MEAN_TASK,),
)

MEDICAL_CMN_PUBLIC = EditionBenchmark(
    name="Medical(cmn, public)",
    display_name="Chinese medical, public",
    task_names=(*CMEDQA_TASKS, *MTEB_RETRIEVAL, *(one.task for one in cmirb_sets())),
    description=(
        "The public Chinese medical retrieval sets: mteb's two CMedQA reranking tasks, its three retrieval "
        "tasks, and the ten sets of CMIRB. CMIRB publishes the three retrieval sets once more, so they count "
        "twice in the mean over tasks; compare models task by task, or on CMIRB alone."
    ),
    reference=cmirb.REFERENCE,
    citation=cmirb.CITATION,
    aggregations=(BenchmarkAggregation.MEAN_TASK, BenchmarkAggregation.TASK_TYPES),
)

BMRETRIEVER_ENG = EditionBenchmark(
    name="BMRetriever(eng, v1)",
    task_names=relatives.BMRETRIEVER_SETS,
    averages={f"average of {n}": [relatives.BMRETRIEVER_SETS[:n]] for n in (4, 5)},
    description=(
        "The eleven evaluation sets of BMRetriever: five of mteb's, and six that `medteb build relatives` "
        "makes of raw files. Different from the paper: BioASQ's corpus (snippets of documents), "
        "PubMedQA's corpus (the labelled abstracts, unless PQA-A is added) and the Disease Ontology in the "
        "place of MeSH. The paper averages only its first four (NFCorpus, SciFact, SCIDOCS, TREC-COVID) and "
        "first five (with BIOSSES) sets."
    ),
    reference=relatives.BMRETRIEVER,
    citation=relatives.BMRETRIEVER_CITATION,
    aggregations=(BenchmarkAggregation.MEAN_TASK, BenchmarkAggregation.TASK_TYPES),
)

_OF_TYPE = {kind: [name for name, task in english_tasks().items() if task.type == kind] for kind in TYPES}
MEDTEB_ENG_V1 = EditionBenchmark(
    name="MedTEB(eng, v1)",
    display_name="English medical",
    task_names=tuple(english_tasks()),
    averages={**{kind: [names] for kind, names in _OF_TYPE.items()}, "by type": list(_OF_TYPE.values())},
    description=(
        "English MedTEB: 51 tasks of classification, clustering, pair classification and retrieval, "
        "averaged over tasks and by type as published. No data are published: they come from a snapshot, "
        "the folder MedTEB-eng in $MEDTEB_DATA. 26 tasks need MIMIC-IV, six others an LLM. Compare scores "
        "only where the dataset revisions agree."
    ),
    reference=english.REFERENCE,
    citation=english.CITATION,
    aggregations=(
        BenchmarkAggregation.MEAN_TASK,
        BenchmarkAggregation.MEAN_TASK_TYPE,
        BenchmarkAggregation.TASK_TYPES,
    ),
)

# By the variable name under which mteb's module of benchmarks will hold them.
BENCHMARKS: Mapping[str, Benchmark] = {
    "MEDTEB_CMN_V1": MEDTEB_CMN_V1,
    "MEDTEB_CMN_MINI": MEDTEB_CMN_MINI,
    "MEDICAL_CMN_PUBLIC": MEDICAL_CMN_PUBLIC,
    "CMIRB": CMIRB,
    "NANO_CMTEB": NANO_CMTEB,
    "NANO_CMTEB_RERANKING": NANO_CMTEB_RERANKING,
    "NANO_MEDICAL": NANO_MEDICAL,
    "NANO_MEDICAL_RERANKING": NANO_MEDICAL_RERANKING,
    "BMRETRIEVER_ENG": BMRETRIEVER_ENG,
    "MEDTEB_ENG_V1": MEDTEB_ENG_V1,
}
