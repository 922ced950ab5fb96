"""Vectors or scores of a teacher for labelled rows, computed once and given to the loss as labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sentence_transformers import CrossEncoder

from mar_st.errors import MarError
from mar_st.model.digest import DOCUMENT_PROMPTS
from mar_st.stages.labels import with_scores, with_vectors
from mar_st.teachers import CrossEncoderTeacher, ModelTeacher, RoleEncoding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from mar_st.data import Source
    from mar_st.recipes.schema import Data, DistillStage, JointStage, Side
    from mar_st.stages.settings import StageSettings
    from mar_st.teachers.store import TeacherStore
    from mar_st.teachers.vectors import Vectors


class DistillError(MarError):
    """A teacher that a student cannot learn scores from."""


def taught(
    data: Mapping[str, Dataset],
    teacher: SentenceTransformer | CrossEncoder | None,
    sources: Sequence[Source],
    stage: DistillStage | JointStage,
    settings: StageSettings,
    *,
    read: Sequence[str] | None = None,
) -> dict[str, Dataset]:
    """Return the rows of a stage with a `label` from its teacher.

    Vectors and scores are computed before the first step and kept in a store beside the run folder (or in
    `$MAR_STORE`), where a resumed run and other runs find them. The labels of a bi-encoder are vectors of all
    texts, encoded with its own prompts (see `teacher_vectors`); those of a cross-encoder are its logits of
    each query with its own documents.

    Args:
        data: Columns of each data entry, see `mar_st.stages.contrastive.stage_columns`.
        teacher: The teacher.
        sources: Data settings.
        stage: The stage.
        settings: Run folder and precision.
        read: Columns whose texts the student encodes, see `with_vectors`; default all.

    Raises:
        DistillError: There is no teacher, or its similarity is neither cosine nor dot product.
    """
    store = settings.teacher_store()
    if isinstance(teacher, CrossEncoder):
        scores = CrossEncoderTeacher(teacher, store).scores
        return {name: with_scores(columns, scores) for name, columns in data.items()}
    if teacher is None or teacher.similarity_fn_name not in ("cosine", "dot"):
        got = "there is none" if teacher is None else f"this one scores by {teacher.similarity_fn_name}"
        raise DistillError(f"stage {stage.name}: the teacher must score by cosine or dot product; {got}.")
    encoder: Any = teacher.eval()
    autocast = settings.precision == "bf16"
    labelled = {}
    for source in sources:
        entry, columns = source.entry, data[source.entry.name]
        roles: dict[str, Side] = {
            name: "query" if entry.symmetric or name == "query" else "document"
            for name in columns.column_names
        }
        vectors = teacher_vectors(encoder, store, entry, autocast=autocast).vectors
        labelled[entry.name] = with_vectors(columns, roles, vectors, read=read)
    return labelled


def kl_scope(stage: DistillStage | JointStage, data: Mapping[str, Dataset]) -> Literal["group", "batch"]:
    """Return the scope of a stage's KL: by default `group` if all queries have several documents."""
    if stage.kl_scope is not None:
        return stage.kl_scope
    texts = ([name for name in columns.column_names if name != "label"] for columns in data.values())
    return "batch" if any(len(names) < 3 for names in texts) else "group"


def teacher_temperature(stage: DistillStage | JointStage) -> float | None:
    """Return the temperature of the teacher's scores; 1 by default for logits of a cross-encoder."""
    if stage.teacher_temperature is None and stage.cross_encoder is not None:
        return 1.0
    return stage.teacher_temperature


@dataclass(frozen=True)
class Asked:
    """A teacher with the prompts of a data entry; the dot product of its vectors is its score."""

    teacher: ModelTeacher
    unit: bool

    def vectors(self, texts: Sequence[str], role: Side) -> Vectors:
        """Return the vectors of texts, of length 1 for a teacher that scores by cosine."""
        return self.teacher.vectors(texts, role).cut(None, normalised=self.unit)


def teacher_vectors(
    teacher: SentenceTransformer, store: TeacherStore, entry: Data, *, autocast: bool = False
) -> Asked:
    """Return the teacher with its prompts for the texts of a data entry.

    A query gets the teacher's prompt with the name that the entry gives, else the prompt `query`; a document
    gets the prompt `document`.

    Args:
        teacher: A symmetric model, in evaluation mode.
        store: Teacher store that keeps its vectors.
        entry: The data entry; `prompt` names the prompt before its queries.
        autocast: Compute in bfloat16 where torch considers it safe.
    """
    own = {name: text or "" for name, text in teacher.prompts.items()}
    query = own.get(entry.prompt, own.get("query", "")) if entry.prompt else ""
    document = next((own[name] for name in DOCUMENT_PROMPTS if own.get(name)), "")
    asks: dict[Side, RoleEncoding] = {
        "query": RoleEncoding("query", query),
        "document": RoleEncoding("document", document),
    }
    model = ModelTeacher(teacher, store, asks, autocast=autocast)
    return Asked(model, teacher.similarity_fn_name == "cosine")
