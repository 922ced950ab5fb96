"""Score distillation: a symmetric model learns the scores of another one (RocketQAv2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.losses import ScoreDistillLoss
from mar_st.stages.contrastive import column_prompts, stage_columns
from mar_st.stages.deepspeed import check_deepspeed
from mar_st.stages.labels import with_vectors
from mar_st.stages.trainer import Settings, fit
from mar_st.store import TeacherStore, store_root
from mar_st.teachers import Ask, ModelTeacher
from mar_st.teachers.model import DOCUMENT_PROMPTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from mar_st.data import Source
    from mar_st.schema import Data, DistillStage, Side
    from mar_st.store import Vectors


class DistillError(MarError):
    """A teacher that a student cannot learn scores from."""


def train_distill(
    student: SentenceTransformer,
    teacher: SentenceTransformer | None,
    sources: Sequence[Source],
    stage: DistillStage,
    settings: Settings,
    prompts: Mapping[str, str],
) -> None:
    """Train the student in place on labelled triples and on the teacher's scores of them.

    The teacher's vectors of all texts are computed once, before the first step, and kept in a store beside
    the run folder (or in `$MAR_STORE`), so a step costs the student alone; widths may differ. The teacher is
    asked with its own prompts: for a query that of the name the data entry gives, else its `query`; for a
    document its `document`. Its score is its own similarity, cosine or dot product.

    Args:
        student: A symmetric model.
        teacher: A symmetric model of any width; moved to the CPU when its vectors are there.
        sources: Data settings with their triples.
        stage: Hyperparameters and loss weights.
        settings: Run folder, seed, precision.
        prompts: Prompt texts by name, for the student, as in `train_contrastive`.

    Raises:
        DistillError: There is no teacher, or it scores by neither cosine nor dot product.
        ArgumentsError: DeepSpeed is asked for and cannot do the stage.
    """
    check_deepspeed(stage, settings)
    if teacher is None or teacher.similarity_fn_name not in ("cosine", "dot"):
        got = "there is none" if teacher is None else f"this one scores by {teacher.similarity_fn_name}"
        raise DistillError(f"stage {stage.name}: the teacher must score by cosine or dot product; {got}.")
    data = stage_columns(sources, stage, settings)
    of_columns = column_prompts(sources, data, prompts)
    store = TeacherStore(store_root(settings.folder.resolve().parent))
    teacher.eval()
    labelled = {
        source.entry.name: with_vectors(
            data[source.entry.name],
            column_roles(data[source.entry.name], symmetric=source.entry.symmetric),
            teacher_vectors(teacher, store, source.entry, autocast=settings.precision == "bf16").vectors,
        )
        for source in sources
    }
    teacher.to("cpu")
    loss = ScoreDistillLoss(
        student,
        temperature=stage.temperature,
        teacher_temperature=stage.teacher_temperature,
        kl_weight=stage.kl_weight,
        contrastive_weight=stage.contrastive_weight,
        false_negative_margin=stage.false_negative_margin,
        gather_across_devices=stage.cross_device_negatives,
        mini_batch_size=stage.mini_batch_size,
    )
    fit(student, labelled, loss, stage, settings, prompts=of_columns)


@dataclass(frozen=True)
class Asked:
    """A teacher with the prompts of a data entry; the dot product of its vectors is its score."""

    teacher: ModelTeacher
    unit: bool

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Vectors of texts, of length 1 for a teacher that scores by cosine."""
        return self.teacher.vectors(texts, role).cut(None, normalised=self.unit)


def teacher_vectors(
    teacher: SentenceTransformer, store: TeacherStore, entry: Data, *, autocast: bool = False
) -> Asked:
    """The teacher as it is asked for the texts of a data entry.

    Args:
        teacher: A symmetric model, in evaluation mode.
        store: Where its vectors are kept.
        entry: The data entry; `prompt` names the prompt before its queries.
        autocast: Compute in bfloat16 where torch deems it safe.
    """
    own = {name: text or "" for name, text in teacher.prompts.items()}
    query = (own.get(entry.prompt) or own.get("query", "")) if entry.prompt else ""
    document = next((own[name] for name in DOCUMENT_PROMPTS if own.get(name)), "")
    asks: dict[Side, Ask] = {"query": Ask("query", query), "document": Ask("document", document)}
    model = ModelTeacher(teacher, store, asks, autocast=autocast)
    return Asked(model, teacher.similarity_fn_name == "cosine")


def column_roles(dataset: Dataset, *, symmetric: bool) -> dict[str, Side]:
    """Whether the columns of labelled rows hold queries or documents; those of symmetric data are queries."""
    return {name: "query" if symmetric or name == "query" else "document" for name in dataset.column_names}
