"""Models of this machine for mteb: folders (`mteb run -m ./folder`) and rankings; neither is submitted."""

from __future__ import annotations

import hashlib
import math
import os
import re
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import mteb
from mteb.models import ModelMeta
from safetensors import SafetensorError, safe_open

from mar_st.data.trec import read_run
from mar_st.errors import MarError
from mar_st.files import card_header, one_line, read_record, sha256
from medteb_mteb.editions import MANIFEST_NAME, load_edition, packaged_root
from medteb_mteb.tasks import REPLACED, TASKS
from medteb_mteb.tasks.tables import licence_for_mteb

if TYPE_CHECKING:
    from collections.abc import Iterator


#: First part of the names of models from folders and of rankings, which are never looked up or submitted.
LOCAL, RUN = "local", "run"
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_CONFIG_FILES = ("modules.json", "config.json")
# A file of many gigabytes is sampled: pieces spread over all of it, since two models trained from one
# backbone may share whole regions (frozen embeddings come first, the last norm last).
_MAX_WHOLE_BYTES, _PIECES, _PIECE_BYTES = 16 << 20, 256, 64 << 10
_NO_LIMIT = 10**9  # transformers writes a huge number for a tokenizer without a limit
_EMBEDDING_WEIGHTS = (
    "word_embeddings.weight", "embed_tokens.weight", "tok_embeddings.weight", "/first", "/second",
)  # fmt: skip


class LocalModelMeta(ModelMeta):
    """Metadata of a model whose name must not be looked up on, or sent to, the Hub."""

    def calculate_num_parameters_from_hub(self) -> int | None:
        """Return the number of parameters as stated."""
        return self.n_parameters

    def calculate_memory_usage_mb(self, fetch_from_hf: bool = False) -> int | None:
        """Estimate the memory from the number of parameters; `fetch_from_hf` has no effect."""
        del fetch_from_hf
        return super().calculate_memory_usage_mb(fetch_from_hf=False)

    def push_eval_results(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to push: the name belongs to no Hub repository."""
        del args, kwargs
        raise MarError(f"{self.name} is a local name, so there is no Hub repository to push results to.")


def local_meta(**fields: Any) -> LocalModelMeta:
    """Return metadata in which fields that are not given are unknown."""
    unknown = (
        "revision", "release_date", "languages", "n_parameters", "memory_usage_mb", "max_tokens", "embed_dim",
        "license", "open_weights", "public_training_code", "public_training_data", "similarity_fn_name",
        "use_instructions", "training_datasets",
    )  # fmt: skip
    meta: LocalModelMeta = LocalModelMeta.model_validate(
        {**dict.fromkeys(unknown), "framework": [], **fields}
    )
    return meta


def model_folder(name: str) -> Path | None:
    """Return the folder of a model name, or None if it is an ordinary name.

    A name in the form of a path (`./mar`, `../mar`, `~/mar`, `/models/mar`) is always a folder; any other
    name is one if that folder holds a model.
    """
    folder = Path(os.path.expanduser(name))  # noqa: PTH111 -- keeps ~name of a user that does not exist
    if folder.is_absolute() or name.startswith((".", "~")):
        return folder
    # os.path: False for a name that is too long for a file.
    return folder if any(os.path.isfile(folder / file) for file in _CONFIG_FILES) else None  # noqa: PTH113


def folder_name(folder: Path) -> str:
    """Return the name of a folder's model, `local/<folder>`; `model` in a run is named after the run."""
    folder = folder.resolve()
    run = folder.name == "model" and bool(folder.parent.name)
    return f"{LOCAL}/{folder.parent.name if run else folder.name}"


def resolve_model(name: str) -> ModelMeta:
    """Find a model without loading it.

    Args:
        name: A name that mteb knows or can fetch from the Hub, an alias of ours, or a folder.

    Raises:
        MarError: There is no such model, or the folder is unusable.
    """
    import mteb  # lazy: mteb

    from medteb_mteb.models.metas import ALIASES  # lazy: mteb

    folder = model_folder(name)
    if folder is not None and name not in ALIASES and name not in {m.name for m in mteb.get_model_metas()}:
        return folder_meta(folder)
    try:
        return mteb.get_model_meta(name)
    except KeyError as error:
        # mteb asks the Hub for what it does not know; a name without an organisation cannot be there.
        if "/" not in name or os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            raise MarError(f"model {name}: {error.args[0]}") from None
    try:
        return mteb.get_model_meta(name, fetch_from_hf=True)
    except Exception as error:  # the Hub client raises a dozen types
        raise MarError(
            f"model {name}: not known to mteb, not a folder, and not found on the Hub "
            f"({one_line(error, 200)})"
        ) from None


def folder_meta(folder: Path) -> LocalModelMeta:
    """Return a folder's model metadata: named by `folder_name`, with a digest of its files as revision.

    Raises:
        MarError: There is no folder, or it holds no model, no weights, or only pickled ones.
    """
    if not folder.is_dir():
        raise MarError(f"model {folder}: no such folder")
    folder = folder.resolve()
    _check(folder)
    known = describe_folder(folder)
    return local_meta(
        loader=partial(_load, folder=folder),
        name=folder_name(folder),
        framework=["Sentence Transformers", "PyTorch"],
        model_type=["router"] if _query_folder(folder) else ["dense"],
        **known,
    )


def _check(folder: Path) -> None:
    if not any((folder / file).is_file() for file in _CONFIG_FILES):
        raise MarError(f"model {folder}: holds neither modules.json (sentence-transformers) nor config.json")
    # A model of modules without weights, such as a static one, may have none.
    if not any(folder.rglob("*.safetensors")):
        if any(path.suffix in _PICKLE_SUFFIXES for path in folder.rglob("*")):
            raise MarError(
                f"model {folder}: holds only pickled weights, which can run code; convert them to safetensors"
            )
        if not (folder / "modules.json").is_file():
            raise MarError(f"model {folder}: a configuration without weights")
    kind = _object(folder / "config_sentence_transformers.json").get("model_type")
    if kind not in (None, "SentenceTransformer"):
        raise MarError(f"model {folder}: is a {kind}; expected a SentenceTransformer")


def _load(name: str, revision: str | None = None, *, folder: Path, **kwargs: Any) -> Any:
    del name, revision
    return load_folder(folder, **kwargs)


def load_folder(
    folder: Path | str, *, device: str | None = None, embed_dim: int | None = None, **kwargs: Any
) -> Any:
    """Load a model folder as an mteb encoder: one with query and document routes as MAR, any other unchanged.

    Args:
        folder: The model's folder, or the name of a model of this project.
        device: Torch device; default the best one available.
        embed_dim: Number of dimensions of the vectors, if fewer than the model's.
        **kwargs: Arguments of `open_model`.
    """
    from mteb.models import SentenceTransformerEncoderWrapper  # lazy: mteb

    from mar_st import MAR  # lazy: torch
    from mar_st.model.mar import open_model  # lazy: torch
    from medteb_mteb.models.encoders import MAREncoder  # lazy: mteb

    model = open_model(folder, device=device, truncate_dim=embed_dim, **kwargs)
    return MAREncoder(model) if isinstance(model, MAR) else SentenceTransformerEncoderWrapper(model)


def describe_folder(folder: Path) -> dict[str, Any]:
    """Describe a saved model without loading it, in the fields of `ModelMeta`; None where it says nothing.

    Counts come from the headers of the weight files, the licence from the header of the card.
    """
    shapes = dict(_shapes(folder))
    embeddings = [shape for name, shape in shapes.items() if name.endswith(_EMBEDDING_WEIGHTS)]
    parameters = sum(map(math.prod, shapes.values())) or None
    similarity = _object(folder / "config_sentence_transformers.json").get("similarity_fn_name")
    query = _query_folder(folder)
    width = _object(query / "config.json").get("hidden_size") if query else None
    stated = [
        _object(path).get(key)
        for name, key in (
            ("sentence_bert_config.json", "max_seq_length"),
            ("tokenizer_config.json", "model_max_length"),
        )
        for path in sorted(folder.rglob(name))
    ]
    lengths = [length for length in stated if isinstance(length, int | float) and 0 < length < _NO_LIMIT]
    try:
        header = card_header(folder)
    except MarError:
        header = {}
    return {
        "revision": folder_revision(folder),
        "n_parameters": parameters,
        "n_embedding_parameters": sum(map(math.prod, embeddings)) or None,
        "memory_usage_mb": mebibytes(parameters),
        "embed_dim": widths(width) if isinstance(width, int) else None,
        "max_tokens": min(lengths, default=None),
        "similarity_fn_name": similarity if similarity in ("cosine", "dot") else None,
        "license": licence_for_mteb(str(header["license"])) if header.get("license") else None,
    }


def folder_revision(folder: Path) -> str:
    """Return the sha256 (first 40 hex digits) of a model folder's files, so that results follow the weights.

    For files above 16 MiB, the size and 256 pieces of 64 KiB, evenly spread over the file, are hashed.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        # The card may be corrected.
        if not path.is_file() or path.suffix == ".md" or any(part.startswith(".") for part in relative.parts):
            continue
        size = path.stat().st_size
        digest.update(f"{relative.as_posix()}\0{size}\0".encode())
        with path.open("rb") as stream:
            if size <= _MAX_WHOLE_BYTES:
                digest.update(stream.read())
                continue
            for index in range(_PIECES):
                stream.seek(index * (size - _PIECE_BYTES) // (_PIECES - 1))
                digest.update(stream.read(_PIECE_BYTES))
    return digest.hexdigest()[:40]


def widths(full: int) -> list[int]:
    """Return widths for truncating vectors of `full` dimensions: 2^k and 3 x 2^k from 8, and `full`.

    mteb refuses to load a model with an `embed_dim` that its metadata does not list.
    """
    steps = {factor << k for factor in (1, 3) for k in range(full.bit_length())}
    return sorted({full, *(step for step in steps if 8 <= step < full)})


def mebibytes(parameters: int | None) -> int | None:
    """Return the memory of this number of float32 parameters in MiB."""
    return None if parameters is None else round(parameters * 4 / 2**20)


def _shapes(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the names and shapes of all weights; nothing of a broken file (loading reports it)."""
    for path in sorted(folder.rglob("*.safetensors")):
        try:
            with safe_open(str(path), framework="numpy") as weights:
                for name in weights.keys():  # noqa: SIM118 -- not a mapping
                    yield f"{path.relative_to(folder)}/{name}", weights.get_slice(name).get_shape()
        except (OSError, SafetensorError):
            continue


def _query_folder(folder: Path) -> Path | None:
    """Return the folder of the first module of a router's query route."""
    # A MAR has a second router, after the encoders, in a separate folder.
    for path in sorted(folder.rglob("router_config.json"), key=lambda path: (len(path.parts), path)):
        structure = _object(path).get("structure")
        first = structure.get("query") if isinstance(structure, dict) else None
        if isinstance(first, list) and first:
            return path.parent / str(first[0])
    return None


def _object(path: Path) -> dict[str, Any]:
    return read_record(path) or {}


class Ranked:
    """Gives the rankings of a file for the queries of a task."""

    mteb_model_meta: ModelMeta

    def __init__(self, path: Path) -> None:
        self.path = path
        self._documents: set[str] = set()

    def index(self, corpus: Any, **kwargs: Any) -> None:
        """Take the ids of the corpus; documents that it does not have are an error."""
        del kwargs
        self._documents = set(corpus["id"])

    def search(self, queries: Any, *, top_k: int, top_ranked: Any = None, **kwargs: Any) -> Any:
        """Return the scores of the file by query and document, best first; of candidates only, if given."""
        del kwargs
        run = read_run(self.path, documents=self._documents)
        found = {}
        for query in queries["id"]:
            row = run.get(query, {})
            if top_ranked is not None and query in top_ranked:
                row = {name: row[name] for name in row if name in set(top_ranked[query])}
            found[query] = dict(list(row.items())[:top_k])
        return found


def run_meta(path: Path) -> LocalModelMeta:
    """Return the metadata of a run: named by its file, with the digest of the file as revision."""
    return local_meta(
        loader=partial(_load_run, path=path),
        name=f"{RUN}/{path.stem}",
        revision=sha256(path)[:16],
        model_type=["sparse"],
    )


def _load_run(name: str, revision: str | None = None, *, path: Path, **kwargs: Any) -> Ranked:
    del name, revision, kwargs
    return Ranked(path)


def reason_to_hold(model: str, task: str, data_revision: str) -> str | None:
    """Return why a result must not leave this machine; None if it may.

    Names of models and tasks from folders may identify a clinic and its data, and a score on a local edition
    could be mistaken for one on the public data of the same name.

    Args:
        model: Name of the model.
        task: Name of the task.
        data_revision: Revision of the data that the score was measured on.
    """
    organisation, _, name = model.partition("/")
    if organisation == RUN:
        return "the model is a ranking of this machine"
    if organisation == LOCAL or "/" in name or organisation.startswith((".", "~")) or not organisation:
        return "the model is a folder of this machine"
    try:
        known = type(mteb.get_task(task))
    except KeyError:
        return "the task is unknown"
    if not (known.__module__.startswith("mteb.") or known in _ours()):
        return "the task is a folder of this machine"
    if is_digest(data_revision) and (task, data_revision) not in _packaged():
        return "the data are a folder of this machine"
    return None


def is_digest(revision: str) -> bool:
    """Return True if a revision of data is the digest of an edition or a folder; the Hub's have 40 digits."""
    return re.fullmatch("[0-9a-f]{64}", revision) is not None


@cache
def _ours() -> frozenset[type]:
    return frozenset((*TASKS, *REPLACED.values()))


@cache
def _packaged() -> frozenset[tuple[str, str]]:
    """Return task and digest of the packaged editions."""
    try:
        editions = [load_edition(path.parent) for path in packaged_root().glob(f"*/{MANIFEST_NAME}")]
    except MarError:  # an installation without them
        return frozenset()
    return frozenset((edition.task, edition.digest) for edition in editions)
