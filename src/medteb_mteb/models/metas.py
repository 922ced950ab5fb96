"""The models this package adds to mteb: MAR in several sizes, BM25, MedTE, and variants of BMRetriever.

Names under ``medteb/`` belong to this package only. They are resolved on this machine and never looked up on
the Hub, where anyone could take them.
"""

from __future__ import annotations

import logging
import textwrap
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from mteb.models import ModelMeta

from mar_st.errors import MarError
from mar_st.model.dtypes import use_native_dtype
from mar_st.model.names import (
    HOME_VARIABLE,
    PACKAGED_MODEL,
    PUBLISHED_MODELS,
    installed_folder,
    model_folder,
    packaged_folder,
    trained_folder,
)
from mar_st.model.names import home as mar_home
from mar_st.model.packed import count_packed
from medteb_mteb.models.bm25 import BM25Model
from medteb_mteb.models.encoders import STS_ROUTE, MAREncoder, StsRoute
from medteb_mteb.models.folder import describe_folder, float32_mebibytes, folder_revision, widths
from medteb_mteb.models.published import BMRETRIEVER_DOT, MEDTE
from medteb_mteb.tasks._edition_task import CITATION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mar_st import MAR

__all__ = ["ALIASES", "MODELS", "STS_ROUTE", "MAREncoder", "ModelUnavailableError"]

logger = logging.getLogger(__name__)


# The authors' published weights (github PhilipGAQ/CARE) are not pinned: no revision is known.
PUBLISHED_LICENCE = "cc-by-nc-sa-4.0"
PUBLISHED_REVISION = "main"


class ModelUnavailableError(RuntimeError):
    """The weights of a model are not on this machine and could not be fetched."""


class LocalModelMeta(ModelMeta):
    """Metadata of a model whose name must not be looked up on, or sent to, the Hub."""

    def calculate_num_parameters_from_hub(self) -> int | None:
        """Return the number of parameters as stated."""
        return self.n_parameters

    def calculate_memory_usage_mb(self, fetch_from_hf: bool = False) -> int | None:
        """Estimate the memory from the number of parameters; ``fetch_from_hf`` has no effect."""
        del fetch_from_hf
        return super().calculate_memory_usage_mb(fetch_from_hf=False)

    def push_eval_results(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse to push: the name belongs to no Hub repository."""
        del args, kwargs
        raise ValueError(f"{self.name} is a local name, so there is no Hub repository to push results to.")


def load_local(
    name: str,
    revision: str | None = None,
    *,
    device: str | None = None,
    embed_dim: int | None = None,
    sts_route: StsRoute = STS_ROUTE,
    **kwargs: Any,
) -> MAREncoder:
    """Load the packaged model, one from a separate package, or one trained here under its name.

    Raises:
        ModelUnavailableError: If the model is not on this machine.
    """
    short = name.split("/")[1]
    try:
        folder = model_folder(name)
    except MarError as error:
        raise ModelUnavailableError(str(error)) from error
    assert folder is not None  # noqa: S101 -- a name of this project is a folder or an error
    # An unpacked model has the revision of the packed one, which is what the metadata were read from.
    packed = None if short == PACKAGED_MODEL or trained_folder(short) else installed_folder(short)
    _same_revision(name, packed or folder, revision)
    return MAREncoder(_load_folder(folder, device, embed_dim, kwargs), sts_route=sts_route)


def load_large(
    name: str,
    revision: str | None = None,
    *,
    device: str | None = None,
    embed_dim: int | None = None,
    sts_route: StsRoute = STS_ROUTE,
    **kwargs: Any,
) -> MAREncoder:
    """Load a model trained here, ``$MAR_HOME/<name>``, or else assemble the authors' published weights.

    A downloaded copy of the published weights may be at ``$MAR_HOME/CARE-0.3B-4B`` (or ``-8B``).

    Raises:
        ModelUnavailableError: If there is neither; the message names both ways to get the model.
    """
    short = name.split("/")[1]
    repository = PUBLISHED_MODELS[short]
    folder = trained_folder(short)
    if folder is not None:
        _same_revision(name, folder, revision)
        return MAREncoder(_load_folder(folder, device, embed_dim, kwargs), sts_route=sts_route)
    home = mar_home()
    copy = home / repository.split("/")[1] if home else None
    source = str(copy) if copy is not None and copy.is_dir() else repository
    message = (
        f"{short}: loading the published weights {repository}, licence {PUBLISHED_LICENCE} (non-commercial)."
    )
    logger.warning(message)
    warnings.warn(message, UserWarning, stacklevel=2)
    try:
        from mar_st.model.published import assemble  # lazy: torch

        model = assemble(source, device=device, **kwargs)
        use_native_dtype(model, kwargs)
    except Exception as error:  # offline, not found, gated, other shape: the Hub client has many types for it
        trained = f"{home}/{short}" if home else f"{short} below a folder that {HOME_VARIABLE} names"
        copy_name = repository.split("/")[1]
        first = textwrap.shorten((str(error).strip().splitlines() or [""])[0], 250, placeholder="...")
        raise ModelUnavailableError(
            f"{name} is not available. Either train it (`mar train {short}`) and put the folder at "
            f"{trained}, or let the published weights {repository} ({PUBLISHED_LICENCE}) be fetched from the "
            f"Hub; a copy of them may be at ${HOME_VARIABLE}/{copy_name}. Reading {source} failed with "
            f"{type(error).__name__}: {first}"
        ) from error
    if embed_dim is not None:
        model.truncate_dim = embed_dim
    return MAREncoder(model, sts_route=sts_route)


def load_bm25(name: str, revision: str | None = None, **kwargs: Any) -> BM25Model:
    """Make a BM25 model; the name ends in its tokeniser (``bm25-jieba``, ``bm25-english``)."""
    del revision
    kwargs.pop("device", None)  # mteb passes one to every loader
    return BM25Model(name.split("/")[1].removeprefix("bm25-"), **kwargs)


def _load_folder(folder: Path, device: str | None, embed_dim: int | None, options: dict[str, Any]) -> MAR:
    from mar_st import MAR  # lazy: torch

    model = MAR.from_pretrained(folder, device=device, truncate_dim=embed_dim, **options)
    use_native_dtype(model, options.get("model_kwargs"))
    return model


def _same_revision(name: str, folder: Path, revision: str | None) -> None:
    # mteb files results under the revision of the metadata, which was read when mteb was imported.
    if revision is not None and (current := folder_revision(folder)) != revision:
        raise ModelUnavailableError(
            f"{name} at {folder} is not the model that was there when mteb was imported (revision {current}, "
            f"expected {revision}). Set {HOME_VARIABLE} and write the model before Python starts."
        )


#: Parameters of all encoders of the package mar-zh, which need not be installed to be asked about.
ZH_PARAMETERS = 78_222_080
#: Days on which the weights of mar-mini and mar-zh were packaged.
MINI_RELEASE, ZH_RELEASE = "2026-11-21", "2026-11-27"
BM25S = "https://github.com/xhluca/bm25s"

_MEDTEB_TASKS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")
_CMEDQA_TASKS = ("CMedQAv1-reranking", "CMedQAv2-reranking")


def _mar_meta(name: str, folder: Path | None, **fields: Any) -> LocalModelMeta:
    known = (
        {key: value for key, value in describe_folder(folder).items() if value is not None} if folder else {}
    )
    content = {
        "name": name,
        "languages": ["zho-Hans"],
        "release_date": None,
        "open_weights": True,
        "memory_usage_mb": None,
        "public_training_code": None,
        "public_training_data": None,
        "framework": ["Sentence Transformers", "PyTorch", "safetensors"],
        "similarity_fn_name": "cosine",
        "use_instructions": True,
        "model_type": ["router"],
        **fields,
        **known,
    }
    if content["embed_dim"] is not None:
        content["embed_dim"] = widths(content["embed_dim"])
    if content["n_parameters"] is not None:
        content["memory_usage_mb"] = float32_mebibytes(content["n_parameters"])
    return LocalModelMeta.model_validate(content)


def _mini_meta() -> LocalModelMeta:
    folder = packaged_folder()
    return _mar_meta(
        "medteb/mar-mini",
        folder if folder.is_dir() else None,
        loader=load_local,
        revision="not-installed",
        n_parameters=None,
        embed_dim=None,
        max_tokens=None,
        license="apache-2.0",
        release_date=MINI_RELEASE,
        # The code has no address: it is in this distribution, as are the data.
        public_training_code="mar train mar-mini (in the distribution medteb)",
        public_training_data=True,
        # Trained on the train split of the packaged edition, which shares its generator with the test split.
        training_datasets=set(_MEDTEB_TASKS),
    )


def _installed_meta(name: str) -> LocalModelMeta:
    short = name.split("/")[1]
    folder = trained_folder(short)
    counted: dict[str, Any] = {}
    if folder is None and (folder := installed_folder(short)) is not None:
        try:
            parameters = count_packed(folder)
            counted = {
                "n_parameters": parameters,
                "n_embedding_parameters": None,
                "memory_usage_mb": float32_mebibytes(parameters),
            }
        except MarError:  # loading it will report the problem
            folder = None
    meta = _mar_meta(
        name,
        folder,
        loader=load_local,
        revision="not-installed",
        n_parameters=ZH_PARAMETERS,
        embed_dim=384,
        max_tokens=256,
        license="mit",
        release_date=ZH_RELEASE,
        public_training_code="mar train mar-zh (in the distribution medteb)",
        public_training_data=True,
        training_datasets=set(),
    )
    return meta.model_copy(update=counted)


def _large_meta(name: str, document_parameters: int, document_embeddings: int) -> LocalModelMeta:
    query_parameters, query_embeddings = 305_368_320, 250_048 * 768
    short = name.split("/")[1]
    trained = trained_folder(short)
    return _mar_meta(
        name,
        trained,
        loader=load_large,
        revision=PUBLISHED_REVISION,
        n_parameters=query_parameters + document_parameters,
        n_embedding_parameters=query_embeddings + document_embeddings,
        embed_dim=768,
        max_tokens=512,
        license=None if trained else PUBLISHED_LICENCE,
        open_weights=None if trained else True,
        reference=None if trained else f"https://huggingface.co/{PUBLISHED_MODELS[short]}",
        # The day of the paper that describes the weights.
        release_date=None if trained else "2026-04-13",
        public_training_code=None if trained else "https://github.com/PhilipGAQ/CARE",
        # The released document vectors are cut after normalisation and scored by dot product.
        similarity_fn_name="cosine" if trained else "dot",
        training_datasets=set(_MEDTEB_TASKS + _CMEDQA_TASKS),
        citation=CITATION,
    )


def _bm25_meta(tokeniser: str, language: str = "zho-Hans") -> LocalModelMeta:
    return LocalModelMeta(
        loader=load_bm25,
        name=f"medteb/bm25-{tokeniser}",
        revision="2",
        release_date=MINI_RELEASE,
        languages=[language],
        n_parameters=0,
        n_embedding_parameters=0,
        memory_usage_mb=None,
        max_tokens=None,
        embed_dim=None,
        license="apache-2.0",
        open_weights=True,
        public_training_code=BM25S,
        public_training_data=None,
        reference=BM25S,
        framework=[],
        similarity_fn_name="cosine",
        use_instructions=False,
        training_datasets=set(),
        model_type=["sparse"],
    )


MODELS: tuple[ModelMeta, ...] = (
    _mini_meta(),
    _installed_meta("medteb/mar-zh"),
    # Document encoders without their language-model head: Qwen3-4B and Qwen3-8B.
    _large_meta("medteb/mar-0.3b-4b", 4_022_468_096, 151_936 * 2560),
    _large_meta("medteb/mar-0.3b-8b", 7_568_405_504, 151_936 * 4096),
    _bm25_meta("jieba"),
    _bm25_meta("char-bigram"),
    _bm25_meta("english", "eng-Latn"),
    MEDTE,
    *BMRETRIEVER_DOT,
)

ALIASES: Mapping[str, str] = {
    str(meta.name).split("/")[1]: str(meta.name) for meta in MODELS if str(meta.name).startswith("medteb/")
}
