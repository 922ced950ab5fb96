"""Stage I: the query encoder is aligned to the frozen document encoder, or to any other teacher."""

from __future__ import annotations

import random
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sentence_transformers.base.modules import Normalize

from mar_st.data.columns import dataset_of, drawn_rows
from mar_st.data.sequences import Texts, distinct, distinct_texts
from mar_st.errors import MarError
from mar_st.losses.alignment import AlignmentLoss
from mar_st.stages.columns import check_prompt, with_vectors
from mar_st.stages.fit import fit
from mar_st.teachers.model import ModelTeacher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from datasets import Dataset

    from mar_st.data.training import Source
    from mar_st.encode.vectors import Vectors
    from mar_st.model.mar import MAR
    from mar_st.recipes.schema import AlignStage, Side
    from mar_st.stages.trainer import StageSettings

#: Column of the second text of a row.
SECOND_COLUMN = "second"


def train_align(
    model: MAR,
    sources: Sequence[Source],
    stage: AlignStage,
    settings: StageSettings,
    prompts: Mapping[str, str],
) -> None:
    """Train the query encoder in place; every query and every document is paired with itself.

    The teacher is the current document route, its cut and normalisation included: if the MAR renormalises,
    the targets have length 1; otherwise they are shorter and are used unchanged. It encodes documents as
    `encode_corpus` does. It encodes queries with the prompt of their data entry, as in the initialisation of
    the document encoder (`teacher_prompt: query`), or as documents (`document`). The query encoder sees a
    query with the prompt of its data entry in front, and a document without one. The teacher's vectors are
    computed once and kept in a store beside the run folder (or in `$MAR_STORE`), where other runs with the
    same document encoder find them; the document route does not run in the loop. Negatives of the contrastive
    part are the other texts of the whole batch, those of other processes included.

    With `vectors: raw` both encoders' vectors are compared before their normalisation (KALE, ScalingNote).
    With a second weight in `text_weights` every row has a second text beside its own, a document drawn from
    the stage's data with the seed (KALE).

    Args:
        model: The MAR; its document route is not changed.
        sources: Data settings with their triples or texts.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name.

    Raises:
        MarError: No data entry has texts of the kind that `stage.texts` requires, or a second text is
            required and there are no documents.
    """
    for module in model.route_modules("document"):
        module.requires_grad_(False)
    raw = stage.vectors == "raw"
    teacher = ModelTeacher.of_documents(
        model, settings.teacher_store(), normalised=not raw, autocast=settings.precision == "bf16"
    )

    def vectors_of(texts: Sequence[str], group: TextGroup) -> Vectors:
        if stage.teacher_prompt == "query" and group.role == "query":
            prompt = prompts.get(group.prompt, "")
            check_prompt(model.route_modules("document")[0], prompt, texts)
            return teacher.with_query_prompt(prompt).vectors(texts, "query")
        return teacher.vectors(texts, group.role)

    with _raw_vectors(model) if raw else nullcontext():
        align_to(model, vectors_of, sources, stage, settings, prompts)


@contextmanager
def _raw_vectors(model: MAR) -> Iterator[None]:
    """Skip the normalisation in training mode; in evaluation mode vectors stay normalised."""
    modules: list[Any] = [module for module in model.modules() if isinstance(module, Normalize)]
    for module in modules:
        module.forward = partial(_while_training, module)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _while_training(module: Any, features: dict[str, Any]) -> dict[str, Any]:
    output: dict[str, Any] = features if module.training else type(module).forward(module, features)
    return output


def align_to(
    model: MAR,
    vectors_of: Callable[[Sequence[str], TextGroup], Vectors],
    sources: Sequence[Source],
    stage: AlignStage,
    settings: StageSettings,
    prompts: Mapping[str, str],
) -> None:
    """Train the query route of a model towards a teacher, in place.

    Args:
        model: A MAR with a query route; other routes are not changed.
        vectors_of: Returns the vectors that the teacher gives texts of a group.
        sources: Data settings with their triples or texts.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name, for the query encoder; the one with an empty name goes before
            documents.

    Raises:
        MarError: There are no texts, or the vectors of the teacher and of the query encoder differ in width.
    """
    data: dict[str, Dataset] = {}
    texts_prompts: dict[str, dict[str, str]] = {}
    groups = text_groups(sources, stage)
    second = _documents(sources, stage) if len(stage.text_weights) > 1 else None
    repeated = stage.batches == "mixed" or second is not None
    for group in groups:
        rows = drawn_rows(len(group.texts), group.weight, random.Random(settings.seed))
        data[group.name] = _rows(model, vectors_of, group, rows, second, settings.seed)
        repeated |= len(rows) > len(group.texts)
        prompt = prompts.get(group.prompt, "")
        texts_prompts[group.name] = {"text": prompt} if prompt else {}
    names = ("contrastive_weight", "mse_weight", "cosine_weight", "kl_weight", "kl_temperature")
    loss = AlignmentLoss(
        model,
        temperature=stage.temperature,
        text_weights=stage.text_weights,
        gather_across_devices=True,
        mini_batch_size=stage.mini_batch_size,
        mini_batch_tokens=stage.mini_batch_tokens,
        **{name: getattr(stage, name) for name in names},
    )
    columns = ("text",) if second is None else ("text", SECOND_COLUMN)
    fit(
        model,
        data,
        loss,
        stage,
        settings,
        prompts=texts_prompts,
        router_mapping={name: dict.fromkeys(columns, "query") for name in data},
        # The texts of one group are distinct, unless its weight repeats rows; several groups may share texts.
        no_duplicates=repeated and bool(stage.contrastive_weight),
    )


def _rows(
    model: MAR,
    vectors_of: Callable[[Sequence[str], TextGroup], Vectors],
    group: TextGroup,
    rows: np.ndarray,
    second: TextGroup | None,
    seed: int,
) -> Dataset:
    """Return the rows of a group with the teacher's vectors, each with a drawn text of `second`."""

    def checked(texts: Sequence[str], role: Side) -> Vectors:
        vectors = vectors_of(texts, by_role[role])
        width = model.get_embedding_dimension()
        if vectors.shape[1] != width:
            raise MarError(
                f"The teacher's vectors have {vectors.shape[1]} dimensions, the query encoder's {width}. "
                "Cut the teacher (dim), or give the query encoder a projection of its width."
            )
        return vectors

    columns = {"text": group.texts.select(rows)}
    by_role = {group.role: group}
    if second is not None:
        drawn = random.Random(f"{seed} {group.name}").choices(range(len(second.texts)), k=len(rows))
        columns[SECOND_COLUMN] = second.texts.select(np.array(drawn))
        by_role[second.role] = second
    table = pa.table({name: pa.chunked_array(list(texts.blocks())) for name, texts in columns.items()})
    roles = dict(zip(columns, (group.role, "document"), strict=False))
    return with_vectors(dataset_of(table), roles, checked)


def _documents(sources: Sequence[Source], stage: AlignStage) -> TextGroup:
    """Return all documents of a stage's data, the second texts of its rows."""
    every = stage.model_copy(update={"texts": "all"})
    documents = [group.texts for group in text_groups(sources, every) if group.role == "document"]
    if not documents:
        raise MarError(
            f"stage {stage.name}: text_weights ask for a second text per row, and its data hold no documents "
            "to draw them from. Name data with documents, or give one weight."
        )
    return TextGroup("second", "document", distinct(*documents), "")


@dataclass(frozen=True)
class TextGroup:
    """Texts of one data entry and one role.

    Attributes:
        name: Name of the dataset.
        role: Whether they are queries or documents.
        texts: Distinct texts.
        prompt: Name of the prompt that the query encoder puts before them; empty for documents.
        weight: Share in the mixture, relative to the number of texts.
    """

    name: str
    role: Side
    texts: Texts
    prompt: str
    weight: float = 1.0


def text_groups(sources: Sequence[Source], stage: AlignStage) -> list[TextGroup]:
    """Return the texts that a stage aligns on, by data entry and role.

    Both columns of a symmetric entry are queries.

    Raises:
        MarError: There are no texts.
    """
    groups = []
    for source in sources:
        entry = source.entry
        queries, documents = distinct_texts(source.triples)
        if entry.symmetric:
            queries, documents = distinct(queries, documents), Texts([])
        if entry.role == "query":
            queries = distinct(source.texts)
        elif entry.role == "document":
            documents = distinct(source.texts)
        groups += [
            TextGroup(f"{entry.name}-queries", "query", queries, entry.prompt, entry.weight),
            TextGroup(f"{entry.name}-documents", "document", documents, "", entry.weight),
        ]
    roles = {"all": ("query", "document"), "queries": ("query",), "documents": ("document",)}[stage.texts]
    chosen = [group for group in groups if group.texts and group.role in roles]
    if not chosen:
        names = ", ".join(source.entry.name for source in sources) or "none"
        raise MarError(
            f"stage {stage.name}: 'texts: {stage.texts}' finds no such texts in its data ({names}). Name "
            "data with them, or align on 'all'."
        )
    return chosen
