"""`mar align`: a small query encoder for an existing document space."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mar_st.commands.options import AsJson, Dtype, Epochs, SaveSteps, Seed, StepBatchSize, Store

Teacher = Annotated[
    str,
    typer.Option(
        help="Teacher: a model (folder or Hub name), a folder of vectors, or openai:MODEL@BASE_URL."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder to write the result to.")]
Queries = Annotated[
    Path | None, typer.Option(help="File of queries: JSONL with 'text' or 'query', or one query per line.")
]
Texts = Annotated[
    Path | None, typer.Option(help="File of documents: JSONL with 'text' and optionally 'title' and '_id'.")
]
Student = Annotated[
    str | None, typer.Option(help="Query encoder to train (folder or Hub name); default: a new small one.")
]
Refine = Annotated[
    str | None, typer.Option(help="Labelled triples for contrastive refinement with frozen document vectors.")
]
Dim = Annotated[
    int | None, typer.Option(help="Number of leading dimensions of the space to use; default: all.", min=1)
]
MiniBatchSize = Annotated[
    int | None,
    typer.Option(help="Number of texts encoded at a time (GradCache); default: the whole step.", min=1),
]
Temperature = Annotated[float, typer.Option(help="Temperature (tau) of the contrastive loss.", min=0.001)]
LengthGroups = Annotated[
    int,
    typer.Option(
        help="Number of batches whose texts are sorted by length together to save padding; 0: none.", min=0
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        help="Learning rate; default: 1e-3 for a new student or a ladder, 1e-4 for a given student."
    ),
]
ContrastiveWeight = Annotated[float, typer.Option(help="Weight of the contrastive loss.", min=0)]
MseWeight = Annotated[float, typer.Option(help="Weight of the squared distance (MSE).", min=0)]
CosineWeight = Annotated[float, typer.Option(help="Weight of the cosine loss (1 - cosine).", min=0)]
Prompt = Annotated[str | None, typer.Option(help="Prompt put before queries; default: the teacher's.")]
DocumentPrompt = Annotated[str, typer.Option(help="Prompt that an endpoint puts before documents.")]
MaxLength = Annotated[int, typer.Option(help="Maximum number of tokens per text of the student.", min=8)]
Layers = Annotated[int, typer.Option(help="Number of layers of a new student.", min=1)]
Dropout = Annotated[
    bool,
    typer.Option(
        "--dropout", help="Train with the dropout of a given student's configuration; default: no dropout."
    ),
]
Width = Annotated[int, typer.Option(help="Hidden size of a new student.", min=2)]
Vocabulary = Annotated[int, typer.Option(help="Maximum vocabulary size of a new student.", min=32)]
RefineEpochs = Annotated[float, typer.Option(help="Number of passes over the triples.", min=0.01)]
RefineBatchSize = Annotated[int, typer.Option(help="Number of triples per step of the refinement.", min=2)]
RefineLearningRate = Annotated[
    float | None, typer.Option(help="Learning rate of the refinement; default: a fifth of --learning-rate.")
]
RefineTemperature = Annotated[float, typer.Option(help="Temperature (tau) of the refinement.", min=0.001)]
RefineStartShare = Annotated[
    float,
    typer.Option(
        help="Share of the weights before the refinement in the final ones (WiSE-FT: 0.5).", min=0, max=0.99
    ),
]
HeldOut = Annotated[
    int, typer.Option(help="Number of queries and of documents held out for the report.", min=0)
]
QueryOnly = Annotated[
    bool, typer.Option("--query-only", help="Leave the teacher's document encoder out of the result.")
]
LadderOption = Annotated[
    str | None,
    typer.Option("--ladder", help="Train several query encoders into one folder, e.g. lookup,1,2,4,full."),
]
LadderLayers = Annotated[
    Literal["last", "first", "spread"],
    typer.Option(help="Layers of the teacher that a rung of the ladder copies."),
]
LadderEmbeddings = Annotated[
    Literal["context-means", "copied"],
    typer.Option(
        help="Token embeddings that the upper layers of a rung start from: each token's mean hidden state, "
        "or the teacher's own."
    ),
]
LadderBigrams = Annotated[
    int,
    typer.Option(
        help="Maximum number of pairs of adjacent tokens that get vectors of their own in such a rung; "
        "without --ladder-embeddings copied.",
        min=0,
    ),
]
DefaultRung = Annotated[
    str | None,
    typer.Option(help="Rung that becomes the default route 'query'; default: 2, otherwise the largest."),
]
Eval = Annotated[
    list[str] | None,
    typer.Option("--eval", help="Task folder (Hub layout) to measure the rungs on; may be repeated."),
]
EvalSplit = Annotated[str, typer.Option(help="Qrels split of the tasks.")]


def align(
    teacher: Teacher,
    out: Out,
    queries: Queries = None,
    texts: Texts = None,
    student: Student = None,
    refine: Refine = None,
    store: Store = None,
    dim: Dim = None,
    epochs: Epochs = 3.0,
    batch_size: StepBatchSize = 64,
    mini_batch_size: MiniBatchSize = None,
    learning_rate: LearningRate = None,
    temperature: Temperature = 0.1,
    length_groups: LengthGroups = 0,
    contrastive_weight: ContrastiveWeight = 1.0,
    mse_weight: MseWeight = 1.0,
    cosine_weight: CosineWeight = 0.0,
    prompt: Prompt = None,
    document_prompt: DocumentPrompt = "",
    max_length: MaxLength = 256,
    layers: Layers = 4,
    dropout: Dropout = False,
    width: Width = 256,
    vocabulary: Vocabulary = 16_000,
    refine_epochs: RefineEpochs = 1.0,
    refine_batch_size: RefineBatchSize = 32,
    refine_learning_rate: RefineLearningRate = None,
    refine_temperature: RefineTemperature = 0.05,
    refine_start_share: RefineStartShare = 0.0,
    held_out: HeldOut = 200,
    dtype: Dtype = "float32",
    seed: Seed = 42,
    save_steps: SaveSteps = 200,
    query_only: QueryOnly = False,
    ladder: LadderOption = None,
    ladder_layers: LadderLayers = "last",
    ladder_embeddings: LadderEmbeddings = "context-means",
    ladder_bigrams: LadderBigrams = 0,
    default_rung: DefaultRung = None,
    eval_: Eval = None,
    eval_split: EvalSplit = "test",
    as_json: AsJson = False,
) -> None:
    """Train a small query encoder for an existing document space.

    The stored document vectors do not change.
    """
    from mar_st.spaces import AlignSettings, Ladder, align_ladder, align_space  # lazy: torch

    given = [default_rung is not None, eval_, ladder_layers != "last", ladder_embeddings != "context-means"]
    if ladder is None and (any(given) or ladder_bigrams):
        raise typer.BadParameter(
            "--ladder-layers, --ladder-embeddings, --ladder-bigrams, --default-rung and --eval belong to "
            "--ladder."
        )
    if ladder_bigrams and ladder_embeddings == "copied":
        raise typer.BadParameter(
            "--ladder-bigrams needs mean hidden states; leave --ladder-embeddings at context-means."
        )
    options = AlignSettings(
        dim=dim,
        epochs=epochs,
        batch_size=batch_size,
        mini_batch_size=mini_batch_size,
        learning_rate=learning_rate,
        temperature=temperature,
        length_groups=length_groups,
        contrastive_weight=contrastive_weight,
        mse_weight=mse_weight,
        cosine_weight=cosine_weight,
        prompt=prompt,
        document_prompt=document_prompt,
        max_length=max_length,
        layers=layers,
        dropout=dropout,
        width=width,
        vocabulary=vocabulary,
        held_out=held_out,
        refine_epochs=refine_epochs,
        refine_batch_size=refine_batch_size,
        refine_learning_rate=refine_learning_rate,
        refine_temperature=refine_temperature,
        refine_start_share=refine_start_share,
        dtype=dtype,
        seed=seed,
        save_steps=save_steps,
        query_only=query_only,
    )
    arguments: dict[str, Any] = {
        "queries": queries,
        "texts": texts,
        "student": student,
        "refine": refine,
        "store": store,
        "options": options,
        "say": lambda line: typer.echo(line, file=sys.stderr if as_json else None),
    }
    if ladder is None:
        manifest = align_space(teacher, out, **arguments)
    else:
        settings = Ladder(
            ladder,
            layers=ladder_layers,
            embeddings=ladder_embeddings,
            bigrams=ladder_bigrams,
            default=default_rung,
            evaluate=tuple(eval_ or ()),
            split=eval_split,
        )
        manifest = align_ladder(teacher, out, settings, **arguments)
    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False, indent=2))
