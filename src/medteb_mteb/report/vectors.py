"""Measurements on the vectors of a model: maps of labelled texts, similarities of pairs, speed."""

from __future__ import annotations

import platform
import random
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from mteb._create_dataloaders import create_dataloader
from mteb.types import PromptType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mteb.abstasks.abstask import AbsTask
    from numpy.typing import NDArray

__all__ = ["EncodingSpeed", "LabelMap", "Similarities", "label_map", "measure_speed", "pair_similarities"]

SEED = 42


@dataclass(frozen=True)
class LabelMap:
    """Texts in two dimensions.

    Attributes:
        points: Shape (texts, 2), float32.
        labels: Label of each text.
        perplexity: Perplexity of t-SNE.
    """

    points: NDArray[np.float32]
    labels: Sequence[str]
    perplexity: float


@dataclass(frozen=True)
class Similarities:
    """Similarities of queries to their positives, and to as many other documents.

    Attributes:
        positives: float64, one per pair.
        negatives: float64, one per pair.
    """

    positives: NDArray[np.float64]
    negatives: NDArray[np.float64]

    def auc(self) -> float:
        """Return the probability that a positive is more similar than a negative; ties count half."""
        ordered = np.sort(self.negatives)
        below = np.searchsorted(ordered, self.positives, "left")
        to = np.searchsorted(ordered, self.positives, "right")
        return float((below + to).mean() / (2 * len(ordered)))


@dataclass(frozen=True)
class EncodingSpeed:
    """Speed of a model.

    Attributes:
        documents_per_second: Documents encoded per second, in batches.
        query_ms: Median time of a single query, in milliseconds.
        documents: Number of documents.
        queries: Number of queries.
        batch_size: Documents encoded at once.
        machine: Processor and threads, or GPU.
    """

    documents_per_second: float
    query_ms: float
    documents: int
    queries: int
    batch_size: int
    machine: str


def label_map(model: Any, task: AbsTask, *, most: int, batch_size: int) -> LabelMap:
    """Return a t-SNE map of the texts of a classification or clustering task, with their labels.

    Args:
        model: An encoder as mteb loads it.
        task: The task, loaded.
        most: Maximum number of texts, sampled with seed 42.
        batch_size: Texts encoded at once.

    Raises:
        ValueError: The task is of another type, or has fewer than four texts.
    """
    from sklearn.manifold import TSNE  # lazy: sklearn

    texts, labels = _labelled(task)
    if len(texts) < 4:
        raise ValueError(f"{task.metadata.name} has {len(texts)} texts; a map needs at least 4")
    if len(texts) > most:
        kept = sorted(random.Random(SEED).sample(range(len(texts)), most))
        texts, labels = [texts[i] for i in kept], [labels[i] for i in kept]
    loader = create_dataloader(
        Dataset.from_dict({"text": texts}),
        task_metadata=task.metadata,
        input_column="text",
        batch_size=batch_size,
    )
    vectors = _encode(model, task, loader)
    perplexity = min(30.0, (len(texts) - 1) / 3)
    points = TSNE(perplexity=perplexity, init="pca", random_state=SEED, metric="cosine").fit_transform(
        vectors
    )
    return LabelMap(np.asarray(points, np.float32), labels, perplexity)


def _labelled(task: AbsTask) -> tuple[list[str], list[str]]:
    kind, data = task.metadata.type, _split(task)
    if kind == "Clustering" and "sentences" in data.column_names:
        sets = list(zip(data["sentences"], data["labels"], strict=True))
        if all(isinstance(texts, str) for texts, _ in sets):
            return [text for text, _ in sets], [str(label) for _, label in sets]
        return [str(t) for texts, _ in sets for t in texts], [str(x) for _, labels in sets for x in labels]
    if kind == "Classification":
        return list(map(str, data["text"])), list(map(str, data["label"]))
    raise ValueError(f"{task.metadata.name} is of type {kind}; give one of classification or clustering")


def pair_similarities(model: Any, task: AbsTask, *, most: int, batch_size: int) -> Similarities:
    """Return similarities of queries to each positive, and to a random unjudged document for each.

    Args:
        model: An encoder as mteb loads it.
        task: A retrieval task, loaded.
        most: Maximum number of queries, sampled with seed 42.
        batch_size: Texts encoded at once.

    Raises:
        ValueError: The task is of another type, or has no pair.
    """
    queries, corpus, relevant = _retrieval(task)
    draw = random.Random(SEED)
    chosen = sorted(query for query in queries if any(g > 0 for g in relevant.get(query, {}).values()))
    if len(chosen) > most:
        chosen = sorted(draw.sample(chosen, most))
    documents = sorted(corpus)
    pairs: list[tuple[str, str, str]] = []
    for query in chosen:
        judged = relevant[query]
        # Few judgements: draw until a document is unjudged. Many: list the unjudged documents.
        others = documents if 2 * len(judged) < len(documents) else sorted(set(documents) - set(judged))
        for positive, grade in sorted(judged.items()):
            if grade > 0 and positive in corpus and others:
                negative = draw.choice(others)
                while negative in judged:
                    negative = draw.choice(others)
                pairs.append((query, positive, negative))
    if not pairs:
        raise ValueError(f"{task.metadata.name} has no query with a positive and another document")
    needed = sorted({key for _, *both in pairs for key in both})
    first = _texts(model, task, PromptType.query, [queries[one] for one in chosen], batch_size)
    second = _texts(model, task, PromptType.document, [corpus[one] for one in needed], batch_size)
    at, place = {key: i for i, key in enumerate(chosen)}, {key: i for i, key in enumerate(needed)}
    query_vectors = first[[at[query] for query, _, _ in pairs]]
    similarities = [
        np.asarray(
            model.similarity_pairwise(query_vectors, second[[place[one[i]] for one in pairs]]), np.float64
        )
        for i in (1, 2)
    ]
    return Similarities(similarities[0].ravel(), similarities[1].ravel())


def measure_speed(
    model: Any, task: AbsTask, *, documents: int, queries: int, batch_size: int
) -> EncodingSpeed:
    """Measure the speed on texts of a retrieval task: documents in batches, queries one at a time.

    The first batch and the first query are encoded once beforehand, untimed.

    Args:
        model: An encoder as mteb loads it.
        task: A retrieval task, loaded.
        documents: Maximum number of documents.
        queries: Maximum number of queries.
        batch_size: Documents encoded at once.

    Raises:
        ValueError: The task is of another type.
    """
    task_queries, corpus, _ = _retrieval(task)
    passages, questions = list(corpus.values())[:documents], list(task_queries.values())[:queries]
    _texts(model, task, PromptType.document, passages[:batch_size], batch_size)
    _texts(model, task, PromptType.query, questions[:1], 1)
    start = time.perf_counter()
    _texts(model, task, PromptType.document, passages, batch_size)
    elapsed = time.perf_counter() - start
    times = []
    for question in questions:
        start = time.perf_counter()
        _texts(model, task, PromptType.query, [question], 1)
        times.append(time.perf_counter() - start)
    return EncodingSpeed(
        len(passages) / elapsed,
        1000 * median(times),
        len(passages),
        len(questions),
        batch_size,
        _machine(model),
    )


def _machine(model: Any) -> str:
    import torch  # lazy: torch

    device = str(getattr(getattr(model, "model", model), "device", "cpu"))
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name())
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def _split(task: Any) -> Any:
    split, subset = task.eval_splits[0], task.hf_subsets[0]
    return task.dataset[subset][split] if subset in task.dataset else task.dataset[split]


def _retrieval(task: AbsTask) -> tuple[dict[str, Any], dict[str, Any], Any]:
    if task.metadata.type not in ("Retrieval", "Reranking"):
        raise ValueError(f"{task.metadata.name} is of type {task.metadata.type}; give a retrieval task")
    data = _split(task)
    queries, corpus = ({row["id"]: row for row in data[name]} for name in ("queries", "corpus"))
    return queries, corpus, data["relevant_docs"]


def _texts(
    model: Any, task: AbsTask, role: PromptType, rows: list[dict[str, Any]], batch_size: int
) -> NDArray[Any]:
    loader = create_dataloader(
        Dataset.from_list(rows), task_metadata=task.metadata, prompt_type=role, batch_size=batch_size
    )
    return _encode(model, task, loader, prompt_type=role)


def _encode(model: Any, task: AbsTask, loader: Any, **options: Any) -> NDArray[Any]:
    if not hasattr(model, "encode"):
        raise ValueError(f"{type(model).__name__} makes no vectors; give an encoder")
    vectors = model.encode(
        loader,
        task_metadata=task.metadata,
        hf_split=task.eval_splits[0],
        hf_subset=task.hf_subsets[0],
        show_progress_bar=False,
        **options,
    )
    return np.asarray(vectors.cpu() if hasattr(vectors, "cpu") else vectors)
