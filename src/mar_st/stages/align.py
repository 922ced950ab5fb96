"""Stage I: the query encoder is aligned to the frozen document encoder, or to any other teacher."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mar_st.data import distinct_texts
from mar_st.errors import MarError
from mar_st.losses import AlignmentLoss
from mar_st.stages.trainer import Settings, fit
from mar_st.store import TeacherStore, store_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from datasets import Dataset

    from mar_st.data import Source
    from mar_st.model import MAR
    from mar_st.schema import AlignStage, Side
    from mar_st.store import Vectors
    from mar_st.teachers import Teacher


class AlignError(MarError):
    """An alignment without texts, or with vectors that do not fit."""


def train_align(
    model: MAR,
    sources: Sequence[Source],
    stage: AlignStage,
    settings: Settings,
    prompts: Mapping[str, str],
) -> None:
    """Train the query encoder in place; every query and every document is paired with itself.

    The teacher is the document route as it stands, its cut and normalisation included: of a MAR that
    renormalises the targets have length 1, of one that does not they are shorter, and are used so. It encodes
    queries and documents alike as `encode_corpus` does: bare texts, unless the model has a prompt `document`.
    The query encoder sees a query with the prompt of its data entry in front and a document without one. The
    teacher's vectors are computed once and kept in a store beside the run folder (or in `$MAR_STORE`), where
    other runs with the same document encoder find them; the document route does not run in the loop.
    Negatives of the contrastive part are the other texts of the whole batch, those of other processes
    included.

    Args:
        model: The MAR; its document route is not changed.
        sources: Data settings with their triples or texts.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name.

    Raises:
        AlignError: No data entry has texts of the kind that `stage.texts` asks for.
    """
    from mar_st.teachers import ModelTeacher

    for module in model.route_modules("document"):
        module.requires_grad_(False)
    store = TeacherStore(store_root(settings.folder.resolve().parent))
    teacher = ModelTeacher.of_documents(model, store, autocast=settings.precision == "bf16")
    align_to(model, teacher, sources, stage, settings, prompts)


def align_to(
    model: MAR,
    teacher: Teacher,
    sources: Sequence[Source],
    stage: AlignStage,
    settings: Settings,
    prompts: Mapping[str, str],
) -> None:
    """Train the query route of a model towards a teacher, in place.

    Args:
        model: A MAR with a query route; other routes are left alone.
        teacher: Gives the vectors of queries and documents.
        sources: Data settings with their triples or texts.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name, for the query encoder.

    Raises:
        AlignError: There are no texts, or the teacher's vectors are of another width than the query
            encoder's.
    """
    data: dict[str, Dataset] = {}
    texts_prompts: dict[str, dict[str, str]] = {}
    repeated = stage.batches == "mixed"
    for group in text_groups(sources, stage):
        vectors = teacher.vectors(group.texts, group.role)
        width = model.get_embedding_dimension()
        if vectors.shape[1] != width:
            raise AlignError(
                f"The teacher's vectors have {vectors.shape[1]} dimensions, the query encoder's {width}. "
                "Cut the teacher (dim), or give the query encoder a projection of its width."
            )
        rows = weighted(len(group.texts), group.weight, settings.seed)
        data[group.name] = labelled({"text": [group.texts[row] for row in rows]}, rows, vectors)
        repeated |= len(rows) > len(group.texts)
        prompt = prompts.get(group.prompt, "")
        texts_prompts[group.name] = {"text": prompt} if prompt else {}
    loss = AlignmentLoss(
        model,
        temperature=stage.temperature,
        contrastive_weight=stage.contrastive_weight,
        mse_weight=stage.mse_weight,
        cosine_weight=stage.cosine_weight,
        kl_weight=stage.kl_weight,
        kl_temperature=stage.kl_temperature,
        gather_across_devices=True,
        mini_batch_size=stage.mini_batch_size,
    )
    fit(
        model,
        data,
        loss,
        stage,
        settings,
        prompts=texts_prompts,
        router_mapping={name: {"text": "query"} for name in data},
        # The texts of one group are distinct, unless it counts more than once; several may share some.
        no_duplicates=repeated and bool(stage.contrastive_weight),
    )


@dataclass(frozen=True)
class TextGroup:
    """Texts of one data entry and one role.

    Attributes:
        name: Name of the dataset made of them.
        role: Whether they are queries or documents.
        texts: Distinct texts.
        prompt: Name of the prompt that the query encoder sees before them; empty for documents.
        weight: Share in the mixture, relative to the number of texts.
    """

    name: str
    role: Side
    texts: list[str]
    prompt: str
    weight: float = 1.0


def text_groups(sources: Sequence[Source], stage: AlignStage) -> list[TextGroup]:
    """The texts that a stage aligns on, by data entry and role.

    Both columns of a symmetric entry are queries.

    Raises:
        AlignError: There are none.
    """
    groups = []
    for source in sources:
        entry = source.entry
        queries, documents = distinct_texts(source.triples)
        if entry.symmetric:
            queries, documents = list(dict.fromkeys([*queries, *documents])), []
        own = list(dict.fromkeys(source.texts))
        if entry.role == "query":
            queries = own
        elif entry.role == "document":
            documents = own
        groups += [
            TextGroup(f"{entry.name}-queries", "query", queries, entry.prompt, entry.weight),
            TextGroup(f"{entry.name}-documents", "document", documents, "", entry.weight),
        ]
    wanted = {"all": ("query", "document"), "queries": ("query",), "documents": ("document",)}[stage.texts]
    kept = [group for group in groups if group.texts and group.role in wanted]
    if not kept:
        names = ", ".join(source.entry.name for source in sources) or "none"
        raise AlignError(
            f"stage {stage.name}: 'texts: {stage.texts}' finds no such texts in its data ({names}). Name "
            "data with them, or align on 'all'."
        )
    return kept


def weighted(number: int, weight: float, seed: int) -> list[int]:
    """Rows, `number * weight` in all: each as often as the weight is whole, the rest drawn with a seed."""
    whole, rest = divmod(round(number * weight), number)
    drawn = sorted(random.Random(seed).sample(range(number), rest))
    return [*range(number)] * whole + drawn


def labelled(columns: Mapping[str, list[str]], rows: Sequence[Any], vectors: Vectors) -> Dataset:
    """A dataset whose `label` column is read from stored vectors when a batch is made.

    Args:
        columns: Columns of texts.
        rows: For each row of the dataset the row of its vector, or several of them.
        vectors: The vectors.

    Returns:
        A dataset with the first column and a `label`: `(dim,)` per row, or `(number, dim)` for several. The
        other columns are not handed out, but samplers can see them.
    """
    from datasets import Dataset

    dataset = Dataset.from_dict({**columns, "label": list(rows)})
    return dataset.with_transform(_Labels(next(iter(columns)), vectors))


@dataclass(frozen=True)
class _Labels:
    column: str
    vectors: Vectors

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = torch.as_tensor(batch["label"])
        found = torch.from_numpy(self.vectors[rows.reshape(-1).numpy()])
        return {self.column: batch[self.column], "label": list(found.reshape(*rows.shape, -1))}
