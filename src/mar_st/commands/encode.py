"""`mar encode`: documents to vectors, offline."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from mar_st.commands.options import AsJson

Model = Annotated[
    str, typer.Argument(help="Model: a saved MAR, another model (folder or Hub name), or mar-mini.")
]
Corpus = Annotated[
    str,
    typer.Argument(help="Corpus: JSONL, Parquet, a folder with corpus.jsonl, saved datasets, or a Hub name."),
]
Out = Annotated[Path, typer.Argument(help="Folder to write the vectors to.")]
Dim = Annotated[
    int | None, typer.Option(help="Number of leading dimensions to keep (Matryoshka); default: all.", min=1)
]
Precision = Annotated[
    Literal["float32", "float16", "int8", "binary"], typer.Option(help="Precision of the stored vectors.")
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option(
        help="Dtype that the model computes in; auto: float32 on a CPU, that of the weights on a GPU."
    ),
]
Prompt = Annotated[str | None, typer.Option(help="Prompt put before documents; default: the model's own.")]
MaxLength = Annotated[
    int | None, typer.Option(help="Maximum number of tokens per document; default: the model's.", min=1)
]
ShardRows = Annotated[int, typer.Option("--shard", help="Number of documents per shard.", min=1)]
Tokens = Annotated[
    int | None, typer.Option(help="Number of tokens per batch; default: by model and device.", min=1)
]
Devices = Annotated[
    str | None,
    typer.Option(
        help="Devices with one process each, e.g. cuda:0,cuda:1 or cpu; default: the first GPU, "
        "otherwise cpu."
    ),
]
Workers = Annotated[
    int, typer.Option(help="Number of processes, each with the model; GPUs are assigned in turn.", min=1)
]
Threads = Annotated[
    int | None,
    typer.Option(help="Number of batches computed at once on a CPU; default: all processors.", min=1),
]
Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Where to run: on this machine, or distribute the shards on a Ray cluster."),
]


def encode(
    model: Model,
    corpus: Corpus,
    out: Out,
    dim: Dim = None,
    precision: Precision = "float32",
    dtype: Dtype = "auto",
    prompt: Prompt = None,
    max_length: MaxLength = None,
    shard: ShardRows = 8192,
    tokens: Tokens = None,
    devices: Devices = None,
    workers: Workers = 1,
    threads: Threads = None,
    engine: Engine = "local",
    as_json: AsJson = False,
) -> None:
    """Encode a corpus into a folder of vectors.

    The same command resumes an interrupted run, and encodes documents appended to the corpus since then.
    """
    from mar_st.encode import EncodeSettings, encode_corpus  # lazy: pyarrow

    if devices and workers > 1:
        raise typer.BadParameter("--devices starts one process per device; give it or --workers, not both.")
    settings = EncodeSettings(
        dim=dim,
        precision=precision,
        dtype=dtype,
        prompt=prompt,
        max_length=max_length,
        shard=shard,
        tokens=tokens,
    )
    started = time.monotonic()
    folder = encode_corpus(
        model,
        corpus,
        out,
        settings,
        devices=[name.strip() for name in devices.split(",")] if devices else None,
        workers=workers,
        threads=threads,
        engine=engine,
        say=lambda line: typer.echo(line, file=sys.stderr),
    )
    if as_json:
        shown = {key: value for key, value in folder.manifest.items() if key != "shards"}
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    size = sum(path.stat().st_size for path in (folder.path / "shards").iterdir())
    typer.echo(
        f"{len(folder):,} vectors of {folder.dim} dimensions ({folder.dtype}, {size / 2**20:,.1f} MiB) "
        f"in {out}, {time.monotonic() - started:,.0f} s"
    )
