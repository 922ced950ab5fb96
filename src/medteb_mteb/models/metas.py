"""The models this package adds to mteb: MAR in several sizes, BM25, and MedTE.

Names under `medteb/` belong to this package only. They are resolved on this machine and never looked up on
the Hub, where anyone could take them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mteb.models import ModelMeta

from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.model.loading import use_native_dtype
from mar_st.model.names import (
    HOME_VARIABLE,
    PACKAGED_MODEL,
    PUBLISHED_MODELS,
    home,
    installed_folder,
    packaged_folder,
    trained_folder,
)
from medteb_mteb.models.bm25 import BM25Model
from medteb_mteb.models.encoders import MAX_TOKENS, MAREncoder, load_medte
from medteb_mteb.models.local import (
    LocalModelMeta,
    describe_folder,
    load_folder,
    local_meta,
    mebibytes,
    widths,
)
from medteb_mteb.tasks.english import english_tasks
from medteb_mteb.tasks.tables import cite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

# The authors' published weights (github PhilipGAQ/CARE) are not pinned: no revision is known.
PUBLISHED_LICENCE = "cc-by-nc-sa-4.0"
BM25S = "https://github.com/xhluca/bm25s"
_MEDTEB_TASKS = ("MedTEBRetrieval", "MedTEBReranking", "MedTEBSTS")
_CMEDQA_TASKS = ("CMedQAv1-reranking", "CMedQAv2-reranking")
#: Tasks whose answers are MedQuAD's, one of MedTE's ten sources.
_MEDQUAD_TASKS = ("MedicalQARetrieval", "MedQuADLiveQARetrieval", "retrieval_medquad_dataset")
#: Tasks of English MedTEB whose source is one of MedTE's. Its authors dropped pairs whose second text is in
#: the benchmark word for word; first texts, and texts with small changes, may remain.
_MEDTE_TASKS = (name for name, task in english_tasks().items() if task.source not in ("Wikipedia", "PMC"))


def load_mar(
    name: str,
    revision: str | None = None,
    *,
    device: str | None = None,
    embed_dim: int | None = None,
    **kwargs: Any,
) -> MAREncoder:
    """Load a model that is packaged, installed or trained here, or assemble the authors' published weights.

    A downloaded copy of the published weights may be at `$MAR_HOME/CARE-0.3B-4B` (or `-8B`).

    Raises:
        MarError: There is neither; the message names the ways to get the model.
    """
    del revision
    short = name.split("/")[1]
    if short not in PUBLISHED_MODELS or trained_folder(short):
        encoder: MAREncoder = load_folder(name, device=device, embed_dim=embed_dim, **kwargs)
        return encoder
    from mar_st.model.published import assemble  # lazy: torch

    repository, root = PUBLISHED_MODELS[short], home()
    copy = root / repository.split("/")[1] if root else None
    source = str(copy) if copy is not None and copy.is_dir() else repository
    logger.warning(
        "%s: loading the published weights %s, licence %s (non-commercial).",
        short,
        repository,
        PUBLISHED_LICENCE,
    )
    try:
        model = assemble(source, device=device, **kwargs)
        use_native_dtype(model, kwargs)
    except Exception as error:  # offline, not found, gated, other shape: the Hub client has many types for it
        raise MarError(
            f"{name} is not available. Either train it (`mar train {short}`) and put the folder at "
            f"${HOME_VARIABLE}/{short}, or let the published weights {repository} ({PUBLISHED_LICENCE}) be "
            f"fetched from the Hub; a copy of them may be at ${HOME_VARIABLE}/{repository.split('/')[1]}. "
            f"Reading {source} failed with {type(error).__name__}: {one_line(error, 250)}"
        ) from error
    if embed_dim is not None:
        model.truncate_dim = embed_dim
    return MAREncoder(model)


def load_bm25(name: str, revision: str | None = None, **kwargs: Any) -> BM25Model:
    """Make a BM25 model; the name ends in its tokeniser (`bm25-jieba`, `bm25-english`)."""
    del revision
    kwargs.pop("device", None)  # mteb passes one to every loader
    return BM25Model(name.split("/")[1].removeprefix("bm25-"), **kwargs)


def _mar_meta(name: str, folder: Path | None, **fields: Any) -> LocalModelMeta:
    """Return the metadata of a MAR: what its folder says, else the given fields."""
    known = describe_folder(folder) if folder is not None and folder.is_dir() else {}
    content = {
        "name": f"medteb/{name}",
        "loader": load_mar,
        "revision": "not-installed",
        "languages": ["zho-Hans"],
        "memory_usage_mb": mebibytes(fields.get("n_parameters")),
        "open_weights": True,
        # The code has no address: it is in this distribution, as are the data.
        "public_training_code": f"mar train {name} (in the distribution medteb)",
        "public_training_data": True,
        "framework": ["Sentence Transformers", "PyTorch", "safetensors"],
        "similarity_fn_name": "cosine",
        "use_instructions": True,
        "model_type": ["router"],
        **fields,
        **{key: value for key, value in known.items() if value is not None},
    }
    return local_meta(**content)


def _zh_meta() -> LocalModelMeta:
    # The number of parameters of all encoders, which need not be installed to be asked about.
    fields: dict[str, Any] = {"n_parameters": 68_346_880, "embed_dim": widths(512), "max_tokens": 256}
    return _mar_meta(
        "mar-zh",
        trained_folder("mar-zh") or installed_folder("mar-zh"),
        license="mit",
        release_date="2026-11-29",
        adapted_from="BAAI/bge-small-zh-v1.5",  # mteb adds its training data
        training_datasets=set(),
        **fields,
    )


def _large_meta(name: str, document_parameters: int, document_embeddings: int) -> LocalModelMeta:
    query_parameters, query_embeddings = 305_368_320, 250_048 * 768
    trained = trained_folder(name)
    published: dict[str, Any] = {
        "license": PUBLISHED_LICENCE,
        "open_weights": True,
        "reference": f"https://huggingface.co/{PUBLISHED_MODELS[name]}",
        "release_date": "2026-04-13",  # the day of the paper that describes the weights
        "public_training_code": "https://github.com/PhilipGAQ/CARE",
        # The released document vectors are cut after normalisation and scored by dot product.
        "similarity_fn_name": "dot",
    }
    if trained is not None:
        published = {**dict.fromkeys(published), "similarity_fn_name": "cosine"}
    return _mar_meta(
        name,
        trained,
        revision="main",
        n_parameters=query_parameters + document_parameters,
        n_embedding_parameters=query_embeddings + document_embeddings,
        embed_dim=widths(768),
        max_tokens=512,
        public_training_data=None,
        training_datasets=set(_MEDTEB_TASKS + _CMEDQA_TASKS),
        citation=cite("medteb"),
        **published,
    )


def _bm25_meta(tokeniser: str, language: str = "zho-Hans") -> LocalModelMeta:
    return local_meta(
        loader=load_bm25,
        name=f"medteb/bm25-{tokeniser}",
        revision="2",
        release_date="2026-11-21",
        languages=[language],
        n_parameters=0,
        n_embedding_parameters=0,
        license="apache-2.0",
        open_weights=True,
        public_training_code=BM25S,
        reference=BM25S,
        similarity_fn_name="cosine",
        use_instructions=False,
        training_datasets=set(),
        model_type=["sparse"],
    )


_MEDTE = ModelMeta(
    loader=load_medte,
    name="MohammadKhodadad/MedTE-cl15-step-8000",
    revision="main",  # no source gives a revision
    release_date="2025-07-25",
    languages=["eng-Latn"],
    n_parameters=109_482_752,  # gte-base's
    n_embedding_parameters=30_522 * 768,
    memory_usage_mb=418,
    max_tokens=MAX_TOKENS,
    embed_dim=768,
    license=None,
    open_weights=True,
    public_training_code=None,
    public_training_data=None,
    reference="https://arxiv.org/abs/2507.19407",
    framework=["Sentence Transformers", "PyTorch"],
    similarity_fn_name="cosine",
    use_instructions=False,
    adapted_from="thenlper/gte-base",
    model_type=["dense"],
    training_datasets={"TRECCOVID", "NFCorpus", "CUREv1", *_MEDQUAD_TASKS, *_MEDTE_TASKS},
    citation=cite("medte"),
)

MODELS: tuple[ModelMeta, ...] = (
    # Trained on the train split of the packaged edition, which shares its generator with the test split.
    _mar_meta(
        PACKAGED_MODEL,
        packaged_folder(),
        license="apache-2.0",
        release_date="2026-11-21",
        training_datasets=set(_MEDTEB_TASKS),
    ),
    _zh_meta(),
    # Document encoders without their language-model head: Qwen3-4B and Qwen3-8B.
    _large_meta("mar-0.3b-4b", 4_022_468_096, 151_936 * 2560),
    _large_meta("mar-0.3b-8b", 7_568_405_504, 151_936 * 4096),
    _bm25_meta("jieba"),
    _bm25_meta("char-bigram"),
    _bm25_meta("english", "eng-Latn"),
    _MEDTE,
)
ALIASES: Mapping[str, str] = {
    str(meta.name).split("/")[1]: str(meta.name) for meta in MODELS if str(meta.name).startswith("medteb/")
}
