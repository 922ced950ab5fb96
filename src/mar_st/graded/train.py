"""Training a cross-encoder on graded pairs, and fitting the thresholds between its grades."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.errors import MarError
from mar_st.files import JsonError, move_folder, read_json, refuse_link, write_json
from mar_st.files.checkpoints import last_checkpoint
from mar_st.files.digests import entry_of
from mar_st.files.locks import alone, clear
from mar_st.files.packages import need_packages
from mar_st.graded.grader import THRESHOLDS_FILE, Grader
from mar_st.graded.thresholds import Thresholds, fit_thresholds, weighted_kappa
from mar_st.model.names import model_source
from mar_st.model.reranker import load_cross_encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import CrossEncoder

    from mar_st.graded.pairs import GradedPair

__all__ = ["GraderReport", "GraderSettings", "train_grader"]


@dataclass(frozen=True)
class GraderSettings:
    """Settings of the training of a cross-encoder.

    Attributes:
        layers: Number of first layers of the base model to keep; default all.
        max_length: Maximum number of tokens of query and document together; longer pairs are cut.
        epochs: Passes over the training pairs.
        batch_size: Pairs per step.
        learning_rate: Learning rate of AdamW: a warm-up over a tenth of the steps, then a linear decay.
        lowest: Maximum training pairs of the lowest label per query, drawn at random; default all. Thresholds
            are fitted on all of them.
        calibration: Share of the queries that are not trained on; thresholds are fitted on their pairs.
        folds: Number of parts of these queries; each part is labelled with thresholds of the others, to
            estimate the agreement.
        seed: Seed of the split, the order and dropout.
        save_steps: Steps between checkpoints; interrupted training resumes from the last one.

    Raises:
        MarError: A setting is out of range.
    """

    layers: int | None = None
    max_length: int = 256
    epochs: float = 1.0
    batch_size: int = 32
    learning_rate: float = 5e-5
    lowest: int | None = None
    calibration: float = 0.1
    folds: int = 5
    seed: int = 42
    save_steps: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.calibration < 1:
            raise MarError(f"calibration is a share between 0 and 1; got {self.calibration}.")
        if not 0 <= self.seed < 2**32:
            raise MarError(f"seed is a number from 0 to {2**32 - 1}; got {self.seed}.")
        if self.folds < 2:
            raise MarError(f"folds: two parts at least; got {self.folds}.")
        for name in ("layers", "max_length", "epochs", "batch_size", "learning_rate", "lowest", "save_steps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise MarError(f"{name} must be a finite number above 0; got {value}.")


@dataclass(frozen=True)
class GraderReport:
    """Result of a training.

    Attributes:
        folder: Folder of the cross-encoder.
        thresholds: Bounds between its labels.
        trained: Pairs that it was trained on, by label.
        calibrated: Pairs that the thresholds were fitted on, by label.
        kappa: Weighted kappa between the labels of the calibration pairs and those that thresholds of the
            other folds give them.
    """

    folder: Path
    thresholds: Thresholds
    trained: dict[int, int]
    calibrated: dict[int, int]
    kappa: float

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "folder": str(self.folder),
            "labels": list(self.thresholds.labels),
            "bounds": list(self.thresholds.bounds),
            "trained": {str(label): count for label, count in self.trained.items()},
            "calibrated": {str(label): count for label, count in self.calibrated.items()},
            "kappa": self.kappa,
        }


def train_grader(
    pairs: Sequence[GradedPair], base: str | Path, out: str | Path, settings: GraderSettings | None = None
) -> GraderReport:
    """Train a cross-encoder to grade, or resume an interrupted training.

    The loss is the binary cross-entropy with the label divided by the highest label, so one logit orders all
    grades. Some queries are held back; the thresholds are fitted on their pairs.

    Args:
        pairs: Graded pairs.
        base: Folder or Hub name of an encoder or a cross-encoder to start from.
        out: Folder to write: a sentence-transformers cross-encoder, with `thresholds.json`.
        settings: Training settings.

    Raises:
        MarError: The folder holds something else, another process is writing it, the base is missing, or
            queries or labels are too few.
        PackageError: accelerate is not installed.
    """
    need_packages("accelerate", extra="train", purpose="Training")
    settings = settings or GraderSettings()
    folder = Path(out)
    training, held_back = _split(pairs, settings)
    identity = _identity(pairs, base, settings)
    thresholds_file = folder / THRESHOLDS_FILE
    work = folder.with_name(folder.name + ".work")
    with alone(work, MarError):
        if thresholds_file.is_file():
            return _report(folder, _content(thresholds_file, identity))
        if folder.exists() and any(folder.iterdir()):
            raise MarError(f"{folder} is not empty. Choose another folder, or delete it.")
        refuse_link(folder)
        if settings.layers is not None:
            _check_layers(base, settings.layers)
        if not (work / identity).is_file():
            clear(work)
        (work / identity).touch()
        content = _graded(training, held_back, base, work, settings)
        write_json(work / "model" / THRESHOLDS_FILE, content | {"identity": identity})
        if folder.exists():
            folder.rmdir()
        move_folder(work / "model", folder)
        shutil.rmtree(work, ignore_errors=True)
    return _report(folder, content)


def _graded(
    training: Sequence[GradedPair],
    held_back: Sequence[GradedPair],
    base: str | Path,
    work: Path,
    settings: GraderSettings,
) -> dict[str, Any]:
    """Train the model, save it in `work/model` and return the content of its `thresholds.json`."""
    from mar_st.model.tokenizers import forget_lengths  # lazy: transformers

    top = max(pair.label for pair in (*training, *held_back))
    model = _trained(training, base, work / "checkpoints", settings, top=top)
    forget_lengths(model)
    model.save_pretrained(str(work / "model"), create_model_card=False)
    scores = np.asarray(
        model.predict(
            [(pair.query, pair.document) for pair in held_back], batch_size=64, show_progress_bar=True
        )
    )
    labels = [pair.label for pair in held_back]
    return {
        **_fitted(scores, held_back, settings),
        "trained": dict(sorted(Counter(str(pair.label) for pair in training).items())),
        "calibrated": dict(sorted(Counter(map(str, labels)).items())),
        "settings": asdict(settings),
    }


def _content(file: Path, identity: str) -> dict[str, Any]:
    """Return the content of a finished `thresholds.json`."""
    try:
        content = read_json(file)
    except JsonError as error:
        raise MarError(f"{file} is damaged ({error}). Delete its folder, or choose another one.") from error
    if not isinstance(content, dict) or content.get("identity") != identity:
        raise MarError(
            f"{file.parent} holds a cross-encoder of other data or settings. Choose another folder."
        )
    return content


def _report(folder: Path, content: dict[str, Any]) -> GraderReport:
    return GraderReport(
        folder,
        Grader(folder).thresholds,
        {int(label): count for label, count in content["trained"].items()},
        {int(label): count for label, count in content["calibrated"].items()},
        content["kappa"],
    )


def _identity(pairs: Sequence[GradedPair], base: str | Path, settings: GraderSettings) -> str:
    digest = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode())
    weights = Path(base) / "model.safetensors"
    digest.update(str(entry_of(weights)["sha256"] if weights.is_file() else base).encode())
    for pair in pairs:
        digest.update(json.dumps([pair.query, pair.document, pair.label]).encode())
    return digest.hexdigest()[:32]


def _split(
    pairs: Sequence[GradedPair], settings: GraderSettings
) -> tuple[list[GradedPair], list[GradedPair]]:
    """Return pairs to train on, and pairs of other queries to fit thresholds on."""
    draw = random.Random(settings.seed)
    queries = sorted({pair.query for pair in pairs})
    draw.shuffle(queries)
    count = max(settings.folds, round(len(queries) * settings.calibration))
    held_queries = set(queries[:count])
    training = [pair for pair in pairs if pair.query not in held_queries]
    held_back = [pair for pair in pairs if pair.query in held_queries]
    if len({pair.label for pair in training}) < 2 or len({pair.label for pair in held_back}) < 2:
        raise MarError(
            f"{len(queries)} queries, of which {count} are held back for the thresholds: the pairs of each "
            "part need two labels at least. Give more graded queries."
        )
    if settings.lowest is not None:
        lowest = min(pair.label for pair in training)
        draw.shuffle(training)
        lowest_of_query: Counter[str] = Counter()
        sampled: list[GradedPair] = []
        for pair in training:
            if pair.label == lowest:
                lowest_of_query[pair.query] += 1
                if lowest_of_query[pair.query] > settings.lowest:
                    continue
            sampled.append(pair)
        training = sampled
    return training, held_back


def _fitted(scores: np.ndarray, held_back: Sequence[GradedPair], settings: GraderSettings) -> dict[str, Any]:
    """Return the thresholds of all, and the agreement of each fold with thresholds of the others."""
    labels = np.array([pair.label for pair in held_back])
    thresholds = fit_thresholds(scores, labels.tolist())
    queries = sorted({pair.query for pair in held_back})
    random.Random(settings.seed).shuffle(queries)
    fold_of = {query: number % settings.folds for number, query in enumerate(queries)}
    folds = np.array([fold_of[pair.query] for pair in held_back])
    assigned = np.zeros(len(held_back), dtype=np.int64)
    for fold in range(settings.folds):
        inside, rest = folds == fold, folds != fold
        others = thresholds
        if len(set(labels[rest].tolist())) > 1:
            others = fit_thresholds(scores[rest], labels[rest].tolist())
        assigned[inside] = others.label(scores[inside])
    return {
        "labels": list(thresholds.labels),
        "bounds": list(thresholds.bounds),
        "kappa": weighted_kappa(assigned, labels, int(labels.max()) + 1),
        "folds": settings.folds,
    }


def _trained(
    pairs: Sequence[GradedPair], base: str | Path, checkpoints: Path, settings: GraderSettings, *, top: int
) -> CrossEncoder:
    from datasets import Dataset  # lazy: datasets
    from sentence_transformers.cross_encoder import (  # lazy: sentence_transformers
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from sentence_transformers.cross_encoder.losses import (
        BinaryCrossEntropyLoss,  # lazy: sentence_transformers
    )
    from transformers import set_seed  # lazy: transformers

    set_seed(settings.seed)
    model = _model(base, settings)
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
        save_steps=settings.save_steps,
        save_total_limit=1,
        logging_steps=20,
        report_to="none",
    )
    trainer = CrossEncoderTrainer(
        model=model, args=arguments, train_dataset=data, loss=BinaryCrossEntropyLoss(model)
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
    return model


def _model(base: str | Path, settings: GraderSettings) -> CrossEncoder:
    shape = {} if settings.layers is None else {"num_hidden_layers": settings.layers}
    return load_cross_encoder(
        base,
        what="base",
        num_labels=1,
        max_length=settings.max_length,
        config_kwargs=shape or None,
        model_kwargs={"dtype": "float32"},
    )


def _check_layers(base: str | Path, layers: int) -> None:
    """Raise an error if a base has fewer layers than are kept; further ones would have random weights."""
    from transformers import AutoConfig  # lazy: transformers

    from mar_st.model.encoders import check_source  # lazy: torch

    check_source(str(base), what="base")
    own = getattr(AutoConfig.from_pretrained(model_source(str(base))), "num_hidden_layers", layers)
    if layers > own:
        raise MarError(f"{base} has {own} layers, so {layers} cannot be kept. Give at most {own}.")
