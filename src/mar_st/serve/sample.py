"""Sample corpus of mar-zh, which `mar serve` shows when no index is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.model.names import installed_folder, model_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The model whose package contains the sample.
SAMPLE_MODEL = "mar-zh"

#: Folder beside the packed model, with `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv` and `vectors/`.
SAMPLE_FOLDER = "sample"


def sample_folder() -> Path | None:
    """Return the folder of the sample; `None` if the model is not installed as a package."""
    packed = installed_folder(SAMPLE_MODEL)
    folder = packed.parent / SAMPLE_FOLDER if packed is not None else None
    return folder if folder is not None and (folder / "corpus.jsonl").is_file() else None


def sample_index(say: Callable[[str], None]) -> tuple[str, str]:
    """Return an index of the sample and the model that answers; builds the index on first use.

    The index is beside the unpacked model in this user's cache. The package contains the vectors, so no
    document is encoded.

    Args:
        say: Receives progress messages.

    Raises:
        MarError: The model is not installed.
        IndexingError: The index cannot be built.
    """
    from mar_st.index import build_index  # lazy: pyarrow
    from mar_st.index.manifest import MANIFEST  # lazy: numpy

    sample = sample_folder()
    if sample is None:
        raise MarError(
            f"mar serve without an index shows the sample that comes with {SAMPLE_MODEL}, which is not "
            f"installed. In a clone of the repository, run `pip install ./models/{SAMPLE_MODEL}`, or give an "
            "index that `mar index build` made."
        )
    model = model_folder(SAMPLE_MODEL)
    assert model is not None  # noqa: S101 -- a name of this project is a folder or an error
    index = model.with_name(f"{model.name}-{SAMPLE_FOLDER}")
    if not (index / MANIFEST).is_file():
        say(f"building the index of the sample in {index}")
        build_index(
            sample / "vectors", index, corpus=str(sample / "corpus.jsonl"), kind="exact", progress=False
        )
    return str(index), SAMPLE_MODEL
