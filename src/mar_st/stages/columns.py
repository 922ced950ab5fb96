"""Columns of a stage: texts of its data entries, and labels that a teacher computes before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Router, Transformer
from transformers.utils import logging

from mar_st.data.columns import column_texts, dataset_of, to_dataset
from mar_st.data.sequences import numbered
from mar_st.errors import MarError
from mar_st.modules.arrangement import check_similarity, route
from mar_st.stages.samplers import text_columns
from mar_st.teachers.model import CrossEncoderTeacher, ModelTeacher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from mar_st.data.training import Source
    from mar_st.encode.vectors import Vectors
    from mar_st.recipes.schema import ContrastiveStage, Data, DistillStage, JointStage, Side
    from mar_st.stages.trainer import StageSettings
    from mar_st.teachers.store import TeacherStore

logger = logging.get_logger(__name__)

#: Tokens that a prompt must leave for texts; with fewer than how many left a warning is given, if more than
#: this share of the texts is cut.
MIN_ROOM, WANTED_ROOM, MAX_CUT_SHARE = 16, 32, 0.05

#: Name of the prompt for documents, in training as in `encode_corpus`.
DOCUMENT_PROMPT = "document"


def stage_columns(
    sources: Sequence[Source], stage: ContrastiveStage | DistillStage | JointStage, settings: StageSettings
) -> dict[str, Dataset]:
    """Return the rows of each data entry, with the stage's number of hard negatives if it gives one.

    Raises:
        MarError: Negatives are required, and no query has one.
    """
    data = {}
    for source in sources:
        entry = source.entry
        data[entry.name] = to_dataset(
            source.triples,
            negatives=entry.negatives if stage.negatives is None else stage.negatives,
            positives=entry.positives,
            seed=settings.seed,
            weight=entry.weight,
            name=entry.name,
        )
    return data


def column_prompts(
    sources: Sequence[Source], data: Mapping[str, Dataset], prompts: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the prompt of every column, by data name.

    Queries (and all columns of symmetric data) get the prompt of the data entry, documents
    `DOCUMENT_PROMPT`.
    """
    result = {}
    for source in sources:
        entry = source.entry
        document = prompts.get(entry.prompt if entry.symmetric else DOCUMENT_PROMPT, "")
        texts = {
            column: prompts.get(entry.prompt, "") if column == "query" else document
            for column in data[entry.name].column_names
        }
        result[entry.name] = {column: text for column, text in texts.items() if text}
    return result


def document_columns(
    data: Mapping[str, Dataset], router_mapping: Mapping[str, Mapping[str, str]]
) -> dict[str, list[str]]:
    """Return the document columns by dataset: those of the document route, else all texts after the first.

    If there are routes, columns without a route are only for the samplers and are not encoded.
    """
    result = {}
    for name, dataset in data.items():
        routes = router_mapping[name]
        texts = [column for column in text_columns(dataset) if column in routes or not routes]
        documents = [column for column in texts if routes.get(column) == "document"]
        result[name] = documents or texts[1:] or texts
    return result


def check_prompts(
    model: SentenceTransformer,
    data: Mapping[str, Dataset],
    prompts: Mapping[str, Mapping[str, str]],
    router_mapping: Mapping[str, Mapping[str, str]],
) -> None:
    """Check the prompts of all columns, see `check_prompt`."""
    first: Any = model[0]
    for name, of_columns in prompts.items():
        for column, prompt in of_columns.items():
            chain = route(model, router_mapping[name][column]) if isinstance(first, Router) else [first]
            check_prompt(chain[0], prompt, column_texts(data[name], column))


def check_prompt(encoder: Any, prompt: str, texts: Sequence[str]) -> None:
    """Check that a prompt leaves tokens for the texts behind it; a warning tells if it leaves few.

    Args:
        encoder: First module of an encoder; without a tokenizer it has no maximum length.
        prompt: The prompt.
        texts: Texts that follow it, of which up to 2,000 are looked at.

    Raises:
        MarError: It leaves fewer than `MIN_ROOM` tokens.
    """
    if not prompt or not isinstance(encoder, Transformer):
        return
    limit = int(encoder.max_seq_length or encoder.tokenizer.model_max_length)
    room = limit - len(encoder.tokenizer(prompt)["input_ids"])
    if room < MIN_ROOM:
        raise MarError(
            f"The prompt {prompt[:30]!r} leaves {max(room, 0)} of {limit} tokens for the text behind it; "
            f"{MIN_ROOM} are needed. Raise max_length, or shorten the prompt."
        )
    if room >= WANTED_ROOM:
        return
    sample = [texts[row] for row in range(0, len(texts), max(1, len(texts) // 1000))]
    tokens = encoder.tokenizer(sample, add_special_tokens=False)["input_ids"]
    share = sum(len(ids) > room for ids in tokens) / max(1, len(sample))
    if share > MAX_CUT_SHARE:
        logger.warning(
            f"The prompt {prompt[:30]!r} leaves {room} of {limit} tokens; {share:.0%} of the texts are cut."
        )


# -- labels that are read when a batch is made --


def with_vectors(
    dataset: Dataset,
    roles: Mapping[str, Side],
    vectors_of: Callable[[Sequence[str], Side], Vectors],
    *,
    read: Sequence[str] | None = None,
) -> Dataset:
    """Return the columns of a dataset with a `label` that holds the stored vector of each of its texts.

    Args:
        dataset: Columns of texts.
        roles: Whether a column holds queries or documents.
        vectors_of: Returns the vectors of distinct texts in a role; called once for each role.
        read: Columns whose texts a batch holds; default all. Samplers also see the others.

    Returns:
        The columns of `read`, and `label`: `(columns, width)` float32 per row, in the order of all columns.
    """
    names = dataset.column_names
    stores: dict[Side, Vectors] = {}
    places: dict[str, np.ndarray] = {}
    for role in dict.fromkeys(roles[name] for name in names):
        of_role = [name for name in names if roles[name] == role]
        texts, of_columns = numbered(*(column_texts(dataset, name) for name in of_role))
        stores[role] = vectors_of(texts, role)
        places |= zip(of_role, of_columns, strict=True)
    rows = np.stack([places[name] for name in names], axis=1)
    return _labelled(dataset, rows, _Read(tuple(read or names), tuple(stores[roles[n]] for n in names)))


def with_scores(dataset: Dataset, scores_of: Callable[[Sequence[tuple[str, str]]], Vectors]) -> Dataset:
    """Return the columns of a dataset with a `label` that holds the stored scores of its pairs.

    Args:
        dataset: Columns `query`, `positive`, then any number of negatives.
        scores_of: Returns the scores of (query, document) pairs, as vectors of width 1.

    Returns:
        The columns, and `label`: `(1 + negatives,)` float32 per row, in the order of the columns.
    """
    names = dataset.column_names
    rows = zip(*(column_texts(dataset, name) for name in names), strict=True)
    pairs = [(query, document) for query, *documents in rows for document in documents]
    places = np.arange(len(pairs)).reshape(len(dataset), len(names) - 1)
    stores = (scores_of(pairs),) * places.shape[1]
    return _labelled(dataset, places, _Read(tuple(names), stores, scores=True))


def _labelled(dataset: Dataset, places: np.ndarray, read: _Read) -> Dataset:
    """Return the rows of a dataset in their order with the places of their labels, `(rows, number)`."""
    table, indices = dataset.data.table, dataset._indices
    rows = table if indices is None else table.take(indices.column(0))
    label = pa.FixedSizeListArray.from_arrays(pa.array(places.reshape(-1).astype(np.int32)), places.shape[1])
    return dataset_of(rows.append_column("label", label)).with_transform(read)


@dataclass(frozen=True)
class _Read:
    """Replaces the places in a batch's `label` by what the stores hold there.

    Attributes:
        columns: Columns that a batch keeps.
        stores: The store of each place of a label.
        scores: Whether vectors have width 1 and count as numbers.
    """

    columns: tuple[str, ...]
    stores: tuple[Vectors, ...]
    scores: bool = False

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        places = np.asarray(batch["label"])
        label = np.stack([store[places[:, n]] for n, store in enumerate(self.stores)], axis=1)
        label = label[..., 0] if self.scores else label
        return {**{name: batch[name] for name in self.columns}, "label": list(torch.from_numpy(label))}


# -- teachers --


def taught(
    data: Mapping[str, Dataset],
    teacher: SentenceTransformer | CrossEncoder,
    sources: Sequence[Source],
    stage: DistillStage | JointStage,
    settings: StageSettings,
    *,
    read: Sequence[str] | None = None,
) -> dict[str, Dataset]:
    """Return the rows of a stage with a `label` from its teacher.

    Vectors and scores are computed before the first step and kept in a store beside the run folder (or in
    `$MAR_STORE`), where a resumed run and other runs find them. The labels of a bi-encoder are vectors of all
    texts, encoded with its own prompts (see `encoder_teacher`); those of a cross-encoder are its logits of
    each query with its own documents.

    Args:
        data: Columns of each data entry, see `stage_columns`.
        teacher: The teacher.
        sources: Data settings.
        stage: The stage.
        settings: Run folder and precision.
        read: Columns whose texts the student encodes, see `with_vectors`; default all.

    Raises:
        MarError: The teacher's similarity is neither cosine nor dot product.
    """
    store = settings.teacher_store()
    if isinstance(teacher, CrossEncoder):
        scores = CrossEncoderTeacher(teacher, store).scores
        return {name: with_scores(columns, scores) for name, columns in data.items()}
    check_similarity(teacher, f"stage {stage.name}: the teacher")
    encoder: Any = teacher.eval()
    result = {}
    for source in sources:
        entry, columns = source.entry, data[source.entry.name]
        roles: dict[str, Side] = {
            name: "query" if entry.symmetric or name == "query" else "document"
            for name in columns.column_names
        }
        own = encoder_teacher(encoder, store, entry, autocast=settings.precision == "bf16")
        result[entry.name] = with_vectors(columns, roles, partial(_scoring, own), read=read)
    return result


def _scoring(teacher: ModelTeacher, texts: Sequence[str], role: Side) -> Vectors:
    """Return the vectors of texts whose dot product is the teacher's score."""
    normalised = teacher.model.similarity_fn_name == "cosine"
    return teacher.vectors(texts, role).cut(None, normalised=normalised)


def kl_scope(stage: DistillStage | JointStage, data: Mapping[str, Dataset]) -> Literal["group", "batch"]:
    """Return the scope of a stage's KL: by default `group` if all queries have several documents."""
    if stage.kl_scope is not None:
        return stage.kl_scope
    texts = ([name for name in columns.column_names if name != "label"] for columns in data.values())
    return "batch" if any(len(names) < 3 for names in texts) else "group"


def encoder_teacher(
    teacher: SentenceTransformer, store: TeacherStore, entry: Data, *, autocast: bool = False
) -> ModelTeacher:
    """Return the teacher with its prompts for the texts of a data entry.

    A query gets the teacher's prompt with the name that the entry gives, else the prompt `query`; a document
    gets the prompt `document`.

    Args:
        teacher: A symmetric model, in evaluation mode.
        store: Teacher store that keeps its vectors.
        entry: The data entry; `prompt` names the prompt before its queries.
        autocast: Compute in bfloat16 where torch considers it safe.
    """
    own = teacher.prompts
    query = own.get(entry.prompt, own.get("query")) if entry.prompt else ""
    return ModelTeacher.of_model(teacher, store, autocast=autocast).with_query_prompt(query or "")
