"""`mar encode`: documents to vectors, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mar_st.encode.settings import EncodeSettings, Executor
from mar_st.options import Argument, say


class EncodeCommand(EncodeSettings):
    """Settings of `mar encode`."""

    model: Annotated[str, Argument()] = Field(
        description="Model: a saved MAR, another model (folder or Hub name), or mar-mini."
    )
    corpus: Annotated[str, Argument()] = Field(
        description="Corpus: a JSONL, CSV or Parquet file, a folder with one, or hub:ORG/NAME:SPLIT."
    )
    out: Annotated[Path, Argument()] = Field(description="Folder to write the vectors to.")
    engine: Executor = Field(
        "local", description="Where to run: in one process, or on all GPUs and machines of a Ray cluster."
    )


def encode(settings: EncodeCommand) -> dict[str, Any]:
    """Encode a corpus into a folder of vectors.

    The same command resumes an interrupted run.
    """
    from mar_st.encode.encoding import encode_corpus  # lazy: pyarrow

    folder = encode_corpus(
        settings.model,
        settings.corpus,
        settings.out,
        EncodeSettings(**{name: getattr(settings, name) for name in EncodeSettings.model_fields}),
        engine=settings.engine,
        say=say,
    )
    return {
        "out": str(folder.path),
        **{key: value for key, value in folder.manifest.items() if key != "shards"},
    }
