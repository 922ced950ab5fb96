"""Training a cross-encoder on graded pairs, and fitting the thresholds between its grades."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import (
    finished_folder,
    finished_record,
    last_checkpoint,
    load_package,
    locked,
    read_record,
    write_json,
)
from mar_st.model.digest import model_digest
from mar_st.options import Argument, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from sentence_transformers import CrossEncoder

    from mar_st.data.rows import Row

__all__ = ["GradedPair", "GraderSettings", "read_graded", "train_grader"]

#: The highest allowed label.
MAX_LABEL = 100

#: Share of the queries that thresholds are fitted on, not weights.
CALIBRATION = 0.1

#: Steps between checkpoints.
SAVE_STEPS = 200

#: Parts of the calibration queries; each part is labelled with thresholds of the others.
FOLDS = 5


class GradedPair(NamedTuple):
    """A query and a document with a grade: 0 for unrelated, the higher the better."""

    query: str
    document: str
    label: int


class GraderSettings(Settings):
    """Settings of `mar cross-encoder`."""

    data: Annotated[list[Path], Argument()] = Field(
        min_length=1,
        description="Rows with query, document and label (0 for unrelated); JSONL, CSV or Parquet.",
    )
    base: str = Field(description="Encoder or cross-encoder to start from: folder or Hub name.")
    out: Path = Field(description="Folder to write to.")
    layers: int | None = Field(None, ge=1, description="Number of layers of the base to keep; default: all.")
    max_length: int = Field(256, ge=8, description="Maximum number of tokens of query and document together.")
    epochs: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="Number of passes over the training data."
    )
    batch_size: int = Field(32, ge=1, description="Number of pairs per step.")
    learning_rate: float = Field(
        5e-5,
        gt=0,
        allow_inf_nan=False,
        description="Peak learning rate of AdamW, after a tenth of the steps.",
    )
    seed: int = Field(42, ge=0, lt=2**32, description="Random seed.")


def read_graded(files: Iterable[str | Path]) -> list[GradedPair]:
    """Read graded pairs: rows with `query`, `document` and `label`.

    Raises:
        MarError: A file is missing, there are no rows, or a row is invalid; the message names its line.
    """
    from mar_st.data.rows import read_rows  # lazy: pyarrow

    names = list(files)
    pairs = [pair for name in names for pair in read_rows(name, _pair)]
    if not pairs:
        raise MarError(f"{', '.join(map(str, names))}: no graded pairs. Give query, document and label.")
    return pairs


def _pair(row: Row) -> GradedPair:
    from mar_st.text.values import as_grade, as_text  # lazy: with `read_graded`

    query, document, label = (row.values.get(name) for name in ("query", "document", "label"))
    if as_text(query) is None or as_text(document) is None:
        raise MarError("query and document must be non-empty texts.")
    grade = as_grade(label)
    if grade is None or not 0 <= grade <= MAX_LABEL:
        raise MarError(
            f"label must be a whole number from 0, unrelated, to {MAX_LABEL} at most; got {label!r}. Write "
            "the grades D, C, B, A, S as 0, 1, 2, 3, 4."
        )
    return GradedPair(str(query), str(document), grade)


def train_grader(settings: GraderSettings) -> dict[str, Any]:
    """Train a cross-encoder to grade pairs.

    Thresholds between the grades are fitted to held-out queries. The model reranks (mar search --rerank),
    teaches (teacher: cross-encoder:FOLDER) and judges (medteb judge). Interrupted training resumes from the
    last checkpoint.
    """
    # The loss is the binary cross-entropy with the label divided by the highest label, so one logit orders
    # all grades.
    from mar_st.graded.grader import THRESHOLDS_FILE  # lazy: numpy
    from mar_st.model.tokenizers import forget_lengths  # lazy: transformers

    load_package("accelerate", extra="train")
    pairs = read_graded(settings.data)
    training, held_back = _split(pairs, settings.seed)
    identity, out = _identity(pairs, settings), settings.out
    work = out.with_name(f"{out.name}.work")
    with locked(work):
        content = finished_record(out, THRESHOLDS_FILE, "identity", identity)
        if content is not None:
            return {"out": str(out), **content}
        if read_record(work / "run.json") != {"identity": identity}:  # of other data or settings
            shutil.rmtree(work / "checkpoints", ignore_errors=True)
        write_json(work / "run.json", {"identity": identity})
        model = _trained(training, work / "checkpoints", settings, top=max(pair.label for pair in pairs))
        forget_lengths(model)
        asked = [(pair.query, pair.document) for pair in held_back]
        scores = model.predict(asked, batch_size=64, show_progress_bar=True)
        content = {
            **_fitted(scores, held_back, settings.seed),
            "trained": dict(sorted(Counter(str(pair.label) for pair in training).items())),
            "calibrated": dict(sorted(Counter(str(pair.label) for pair in held_back).items())),
            "settings": settings.model_dump(mode="json", exclude={"data", "out"}),
            "identity": identity,
        }
        with finished_folder(out) as part:
            model.save_pretrained(str(part), create_model_card=False)
            write_json(part / THRESHOLDS_FILE, content)
    shutil.rmtree(work, ignore_errors=True)
    return {"out": str(out), **content}


def _identity(pairs: Sequence[GradedPair], settings: GraderSettings) -> str:
    recorded = settings.model_dump(mode="json", exclude={"data", "out", "base"})
    content = [recorded, model_digest(settings.base), *pairs]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _split(pairs: Sequence[GradedPair], seed: int) -> tuple[list[GradedPair], list[GradedPair]]:
    """Return pairs to train on, and pairs of other queries to fit thresholds on."""
    draw = random.Random(seed)
    queries = sorted({pair.query for pair in pairs})
    draw.shuffle(queries)
    count = max(FOLDS, round(len(queries) * CALIBRATION))
    held_queries = set(queries[:count])
    training = [pair for pair in pairs if pair.query not in held_queries]
    held_back = [pair for pair in pairs if pair.query in held_queries]
    if len({pair.label for pair in training}) < 2 or len({pair.label for pair in held_back}) < 2:
        raise MarError(
            f"{len(queries)} queries, of which {count} are held back for the thresholds: the pairs of each "
            "part need two labels at least. Give more graded queries."
        )
    return training, held_back


def _fitted(scores: np.ndarray, held_back: Sequence[GradedPair], seed: int) -> dict[str, Any]:
    """Return the thresholds of all, and the agreement of each fold with thresholds of the others."""
    import numpy as np  # lazy: numpy

    from mar_st.graded.grader import fit_thresholds, weighted_kappa  # lazy: numpy

    labels = np.array([pair.label for pair in held_back])
    thresholds = fit_thresholds(scores, labels.tolist())
    queries = sorted({pair.query for pair in held_back})
    random.Random(seed).shuffle(queries)
    fold_of = {query: number % FOLDS for number, query in enumerate(queries)}
    folds = np.array([fold_of[pair.query] for pair in held_back])
    assigned = np.zeros(len(held_back), dtype=np.int64)
    for fold in range(FOLDS):
        inside, rest = folds == fold, folds != fold
        others = thresholds
        if len(set(labels[rest].tolist())) > 1:
            others = fit_thresholds(scores[rest], labels[rest].tolist())
        assigned[inside] = others.label(scores[inside])
    return {
        "labels": list(thresholds.labels),
        "bounds": list(thresholds.bounds),
        "kappa": weighted_kappa(assigned, labels, int(labels.max()) + 1),
        "folds": FOLDS,
    }


def _trained(
    pairs: Sequence[GradedPair], checkpoints: Path, settings: GraderSettings, *, top: int
) -> CrossEncoder:
    from datasets import Dataset  # lazy: datasets
    from sentence_transformers.cross_encoder import (  # lazy: sentence_transformers
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from sentence_transformers.cross_encoder.losses import (  # lazy: sentence_transformers
        BinaryCrossEntropyLoss,
    )
    from transformers import set_seed  # lazy: transformers

    from mar_st.model.reranker import load_cross_encoder  # lazy: torch

    set_seed(settings.seed)
    model = load_cross_encoder(
        settings.base,
        what="base",
        num_labels=1,
        max_length=settings.max_length,
        config_kwargs=None if settings.layers is None else {"num_hidden_layers": settings.layers},
        model_kwargs={"dtype": "float32"},
    )
    data = Dataset.from_dict(
        {
            "query": [pair.query for pair in pairs],
            "document": [pair.document for pair in pairs],
            "label": [pair.label / top for pair in pairs],
        }
    )
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=0.1,
        seed=settings.seed,
        save_steps=SAVE_STEPS,
        save_total_limit=1,
        logging_steps=20,
        report_to="none",
    )
    loss = BinaryCrossEntropyLoss(model)
    trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss)
    trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
    return model
