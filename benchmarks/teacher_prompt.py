"""Compare the prompts that a teacher can put before queries while a query encoder is aligned to it.

    python benchmarks/teacher_prompt.py --epochs 1

The teacher is the document encoder of the packaged mar-mini. First its own nDCG@10 on the mini edition, both
sides through it, with and without the prompt that it was initialised with; then that of a query encoder with
random weights that is aligned to it for a short time, with either choice of `teacher_prompt`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModel, set_seed

from mar_st import MAR
from mar_st.data import read_source
from mar_st.evaluation.scored_set import Task
from mar_st.evaluation.tasks import load_task, score
from mar_st.recipes.load import load_recipe
from mar_st.stages.align import train_align
from mar_st.stages.settings import StageSettings
from mar_st.teachers import ModelTeacher
from mar_st.teachers.store import TeacherStore

if TYPE_CHECKING:
    from mar_st.evaluation.tasks import TaskData

TASK = Task(name="mini", path="package:medteb_mteb/MedTEBRetrieval")


@dataclass
class PrecomputedVectors:
    """Vectors that are there already, in the place of a model."""

    queries: Any
    documents: Any
    prompts: dict[str, str] = field(default_factory=dict)

    def encode_query(self, texts: list[str], **options: Any) -> Any:
        """Vectors of the queries."""
        del texts, options
        return torch.as_tensor(self.queries)

    def encode_document(self, texts: list[str], **options: Any) -> Any:
        """Vectors of the documents."""
        del texts, options
        return torch.as_tensor(self.documents)

    def similarity(self, queries: Any, documents: Any) -> Any:
        """Dot products of vectors of length 1."""
        return queries @ documents.T


def ndcg(data: TaskData, queries: Any, documents: Any) -> float:
    """Mean nDCG@10 over the queries of the mini edition."""
    model: Any = PrecomputedVectors(np.asarray(queries), np.asarray(documents))
    return round(float(data.scores([score(model, data)]).per_seed()[0]), 4)


def packaged() -> MAR:
    """The packaged mar-mini."""
    import mar_st

    folder = Path(mar_st.__file__).parent / "models" / "mar-mini"
    return MAR.from_pretrained(folder, device="cpu").float()  # stored in float16, which is slow on a CPU


def aligned(choice: str, options: argparse.Namespace, texts: list[str]) -> np.ndarray:
    """Vectors of queries by an encoder with random weights after `epochs` of mar-mini's alignment."""
    changes = [
        f"stages.align.epochs={options.epochs}",
        f"stages.align.teacher_prompt={choice}",
        *(f"data.{name}.limit={options.limit}" for name in ("retrieval", "sts") if options.limit),
    ]
    recipe = load_recipe("mar-mini", changes)
    stage: Any = next(stage for stage in recipe.stages if stage.name == "align")
    sources = [read_source(entry, recipe.seed) for entry in recipe.data]
    set_seed(options.seed)
    mar = packaged()
    encoder: Any = mar.route_modules("query")[0]
    encoder.model.load_state_dict(AutoModel.from_config(encoder.model.config).state_dict())
    with tempfile.TemporaryDirectory() as folder:
        settings = StageSettings(Path(folder) / "align", options.seed, recipe.precision, save_steps=10**6)
        train_align(mar, sources, stage, settings, recipe.prompts)
    return mar.encode_queries(texts)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=float, default=1.0, help="epochs of the alignment; 0 leaves it out")
    parser.add_argument("--limit", type=int, help="triples of each data entry that are aligned on")
    parser.add_argument("--store", help="folder for the teacher's vectors; default a new one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["MAR_STORE"] = options.store or tempfile.mkdtemp()
    mar, data = packaged(), load_task(TASK)
    queries, documents = list(data.queries.values()), list(data.corpus.values())
    teacher = ModelTeacher.of_documents(mar, TeacherStore(os.environ["MAR_STORE"]))
    corpus = teacher.vectors(documents, "document")
    with_prompt = teacher.with_query_prompt(mar.prompts["query"])
    scores: dict[str, Any] = {
        "frozen": {
            "document": ndcg(data, teacher.vectors(queries, "query"), corpus),
            "query": ndcg(data, with_prompt.vectors(queries, "query"), corpus),
        },
    }
    if options.epochs:
        scores |= {name: getattr(options, name) for name in ("epochs", "limit", "seed")}
        scores["aligned"] = {
            name: ndcg(data, aligned(name, options, queries), corpus) for name in ("document", "query")
        }
    print(json.dumps(scores, indent=2))


if __name__ == "__main__":
    main()
