"""NanoCMTEB and NanoMedical: tasks from the table of published splits, and from folders of the same form.

Each split gives a retrieval task and four reranking tasks: over the hybrid candidates with their safeguard
(`...Reranking`, the published default) and without (`...RerankingNoSafeguard`), over BM25's
(`...BM25Reranking`) and over the dense model's (`...DenseReranking`).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.timing import TimingStack

from medteb_mteb.abstasks.local_copy import LocalCopy, copy_of
from medteb_mteb.folders.layout import config_files
from medteb_mteb.folders.problems import FolderError
from medteb_mteb.measures.rankings import ranked
from medteb_mteb.nano.layout import (
    NanoData,
    holds_split,
    list_names,
    load_hub,
    read_split,
    revision_of,
    splits_of,
    without_safeguard,
)
from medteb_mteb.nano.measures import RANKING_DEPTH, score_rankings
from medteb_mteb.nano.table import BM25, DENSE, HYBRID, published_sets
from medteb_mteb.tasks.citations import cite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mteb.abstasks.abstask import AbsTask

    from medteb_mteb.nano.table import NanoSplit

__all__ = ["NANO_TASKS", "NanoTask", "nano_names", "nano_tasks_from_folder"]

#: The sources name no revision of the Nano sets on the Hub.
UNPINNED = "main"
REFERENCE = "https://arxiv.org/abs/2606.22778"
CITATION = r"""
@misc{tateno2026hakaribench,
  archiveprefix = {arXiv},
  author = {Yuichi Tateno},
  eprint = {2606.22778},
  primaryclass = {cs.IR},
  title = {HAKARI-Bench: A Lightweight Benchmark for Comparing Retrieval Architectures and Efficiency Settings under Unified Conditions},
  url = {https://arxiv.org/abs/2606.22778},
  year = {2026},
}
"""  # noqa: E501


class Variant(NamedTuple):
    """Choice of the documents that a task on a split ranks.

    Attributes:
        suffix: Suffix of the task's name.
        candidates: Name of the candidate list; empty for the whole corpus.
        safeguard: Keep the candidate at rank 101 of hybrid lists.
        about: End of the description's first sentence.
    """

    suffix: str
    candidates: str
    safeguard: bool
    about: str


VARIANTS = (
    Variant("Retrieval", "", True, "over the whole corpus of the split"),
    Variant(
        "Reranking",
        HYBRID,
        True,
        "over 100 candidates fused from BM25 and a dense model; where none of them is relevant, one relevant "
        "document is a 101st (the safeguard)",
    ),
    Variant(
        "RerankingNoSafeguard",
        HYBRID,
        False,
        "over 100 candidates fused from BM25 and a dense model; queries without a relevant candidate score 0",
    ),
    Variant("BM25Reranking", BM25, True, "over BM25's candidates, up to 500"),
    Variant("DenseReranking", DENSE, True, "over the candidates of a dense model, up to 500"),
)


class NanoTask(LocalCopy, AbsTaskRetrieval):
    """Retrieval or reranking on one split of a Nano set.

    The data come from a folder in the published layout (the task's own, or `$MEDTEB_DATA/<set>/` if it holds
    the split), else from the Hub. The revision of a folder is a digest of the split's files, so its scores
    are never confused with those of the Hub's data. Besides mteb's scores, the results hold those of
    `medteb_mteb.nano.measures` with denominators that mteb does not use.

    Attributes:
        rankings: The first 100 documents by query of the last evaluation; `medteb run` keeps them.
    """

    set_name: ClassVar[str]
    split: ClassVar[str]
    variant: ClassVar[Variant]
    #: Folder of a task that was made from one.
    folder: ClassVar[Path | None] = None

    def __init__(self, **kwargs: Any) -> None:
        self.rankings: dict[str, list[str]] = {}
        copy = copy_of(self.copy_name)
        if copy is not None and not holds_split(copy, self.split):
            copy = None  # a download of other splits
        self.use_copy(self.folder or copy, lambda folder: revision_of(folder, self.split))
        super().__init__(**kwargs)

    @property
    def copy_name(self) -> str:
        """Return the name of the copy's folder in `$MEDTEB_DATA`: the set's."""
        return self.set_name

    def load_data(
        self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any
    ) -> None:
        """Read the split from the folder or the Hub and check it.

        Raises:
            FolderError: If the split is invalid, lacks the task's candidates, or changed since the task was
                made.
            DataUnavailableError: If there is no folder and the Hub cannot be reached.
        """
        del num_proc, kwargs  # a checked read of small files takes no options
        if self.data_loaded:
            return
        with (timer or TimingStack())("Data loading", log_message=f"Loading {self.metadata.name}..."):
            self._take(self._read())

    def _read(self) -> NanoData:
        copy = self.copy_to_read()
        lists = [self.variant.candidates] if self.variant.candidates else []
        if copy is None:
            try:
                return load_hub(self.metadata.dataset["path"], self.split, self.metadata.revision, lists)
            except FolderError:
                raise
            except Exception as error:  # offline, blocked, withdrawn: the Hub client has a dozen types for it
                raise self.unavailable(error) from error
        data = read_split(copy, self.split, lists)
        if revision_of(copy, self.split) != self.metadata.revision:
            raise FolderError(copy, ["the data changed after the task was created; create it again"])
        return data

    def _take(self, data: NanoData) -> None:
        candidates = None
        if self.variant.candidates:
            lists = data.lists[self.variant.candidates]
            if self.variant.candidates == HYBRID and not self.variant.safeguard:
                lists = without_safeguard(data)
            candidates = {query: _shuffled(query, documents) for query, documents in lists.items()}
        self.dataset = {
            "default": {
                self.split: {
                    "corpus": Dataset.from_list([{"id": k, "text": v} for k, v in data.corpus.items()]),
                    "queries": Dataset.from_list([{"id": k, "text": v} for k, v in data.queries.items()]),
                    "relevant_docs": {
                        query: dict.fromkeys(documents, 1) for query, documents in data.qrels.items()
                    },
                    "top_ranked": candidates,
                }
            }
        }
        self.data_loaded = True

    def positives(self) -> dict[str, list[str]]:
        """Return the positive documents by query of the loaded split."""
        qrels = self.dataset["default"][self.split]["relevant_docs"]
        return {query: list(documents) for query, documents in qrels.items()}

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],
        qrels: Any,
        results: dict[str, dict[str, float]],
        hf_split: str,
        hf_subset: str,
    ) -> dict[str, float]:
        """Return the scores of `medteb_mteb.nano.measures` whose names mteb does not use."""
        theirs = super().task_specific_scores(scores, qrels, results, hf_split, hf_subset)
        self.rankings = {
            query: ranked(document_scores)[:RANKING_DEPTH] for query, document_scores in results.items()
        }
        ours = asdict(score_rankings(self.rankings, qrels))
        return theirs | {
            name: value for name, value in ours.items() if name not in ("ndcg_at_10", "mrr_at_10")
        }


def _shuffled(query: str, candidates: Iterable[str]) -> list[str]:
    """Return the candidates in an order independent of their ranks, which a reranker could exploit."""
    return sorted(candidates, key=lambda one: hashlib.sha256(f"{query}\0{one}".encode()).digest())


def _published_metadata(split: NanoSplit, hub: str, variant: Variant) -> TaskMetadata:
    """Return the metadata of a published split: the source task's, with the changes made by sampling."""
    source = mteb.get_task(split.task).metadata
    origin = (
        f"{split.source} at {split.source_revision}, split {split.source_split}"
        if split.source
        else (f"the source of {split.task}; its card names no data set and no revision")
    )
    return TaskMetadata(
        name=f"{split.set}{split.stem}{variant.suffix}",
        description=(
            f"Split {split.name} of {split.set} (HAKARI-Bench): {split.queries} queries, "
            f"{split.documents:,} documents, {variant.about}. Sampled from {origin}. The revision of {hub} "
            "is not pinned: no source gives one."
        ),
        dataset={"path": hub, "revision": UNPINNED},
        reference=REFERENCE,
        type="Reranking" if variant.candidates else "Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[split.name],
        eval_langs=[split.language],
        main_score="ndcg_at_10",
        date=source.date,
        domains=source.domains,
        task_subtypes=source.task_subtypes,
        license=source.license,
        annotations_creators=source.annotations_creators,
        dialect=source.dialect,
        sample_creation=source.sample_creation,
        prompt=_for_queries(source.prompt) if isinstance(source.prompt, str) else source.prompt,
        bibtex_citation=cite(CITATION, source.bibtex_citation),
        adapted_from=[split.task],
        contributed_by="HAKARI-Bench",
    )


def _for_queries(prompt: str | None) -> Any:
    return {"query": prompt} if prompt else None


def _make(
    metadata: TaskMetadata, set_name: str, split: str, variant: Variant, folder: Path | None
) -> type[NanoTask]:
    attributes = {
        "metadata": metadata,
        "set_name": set_name,
        "split": split,
        "variant": variant,
        "folder": folder,
        "__doc__": metadata.description,
        "__module__": __name__,
    }
    return cast("type[NanoTask]", type(re.sub(r"\W", "_", metadata.name), (NanoTask,), attributes))


def _published() -> tuple[type[NanoTask], ...]:
    return tuple(
        _make(_published_metadata(split, nano.hub, variant), nano.name, split.name, variant, None)
        for nano in published_sets().values()
        for split in nano.splits.values()
        for variant in VARIANTS
    )


NANO_TASKS: tuple[type[AbsTask], ...] = _published()


def nano_names(set_name: str, suffix: str = "Retrieval") -> list[str]:
    """Return the names of the tasks of a published set.

    Args:
        set_name: `NanoCMTEB` or `NanoMedical`.
        suffix: Suffix of one of the `VARIANTS`.
    """
    return [f"{set_name}{split.stem}{suffix}" for split in published_sets()[set_name].splits.values()]


def nano_tasks_from_folder(folder: Path | str, prompt: str | None = None) -> list[NanoTask]:
    """Make the tasks of every split of a folder in the published layout.

    Their names begin with the folder's name and the split's. There is a task for every candidate list of
    a split, and for hybrid lists one more without the safeguards.

    Args:
        folder: The folder.
        prompt: Instruction for queries; default none.

    Raises:
        FolderError: If the folder does not have that layout.
    """
    folder = Path(folder).expanduser().absolute()
    tasks: list[NanoTask] = []
    if not folder.is_dir() or not splits_of(folder):
        raise FolderError(folder, ["expected a Nano set: corpus, queries and qrels, each with SPLIT.parquet"])
    for split in splits_of(folder):
        lists = [name for name in list_names(folder) if config_files(folder, name, split)]
        for variant in _variants(lists):
            metadata = TaskMetadata(
                name=f"{folder.name}-{split}-{variant.suffix}",
                description=f"Split {split} of the Nano set in {folder.name}, {variant.about}.",
                dataset={"path": folder.as_posix(), "revision": "local"},
                type="Reranking" if variant.candidates else "Retrieval",
                category="t2t",
                modalities=["text"],
                eval_splits=[split],
                eval_langs=["und-Zyyy"],
                main_score="ndcg_at_10",
                prompt=_for_queries(prompt),
                is_public=False,
            )
            tasks.append(_make(metadata, folder.name, split, variant, folder)())
    return tasks


def _variants(lists: Sequence[str]) -> list[Variant]:
    known = [variant for variant in VARIANTS if variant.candidates in ("", HYBRID, BM25)]
    available = [variant for variant in known if not variant.candidates or variant.candidates in lists]
    dense = [name for name in lists if name not in (BM25, HYBRID)]
    return available + [
        Variant(f"{name}-Reranking", name, True, f"over the candidates of {name}") for name in dense
    ]
