"""MAR, the asymmetric retriever: a sentence-transformers model with a query route and a document route."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router

from mar_st.errors import MarError
from mar_st.model.adapters import has_adapter
from mar_st.model.encoders import (
    PROMPT_NAMES,
    PUBLISHED_PROMPTS,
    EncoderSource,
    Task,
    load_encoder,
    source_prompts,
)
from mar_st.model.loading import (
    OWN_MODULES,
    RouterLoader,
    check_weights,
    has_routes,
    loading_of,
    use_native_dtype,
)
from mar_st.model.names import model_source
from mar_st.model.tokenizers import check_tokenizer
from mar_st.modules.arrangement import arrange, is_truncation, route, truncation, width
from mar_st.modules.bigrams import HUB_OPTIONS
from mar_st.modules.layout import read_router, routers, write_router
from mar_st.text.texts import Document, join_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers.base.modules.module import Module


Routes: TypeAlias = Literal["both", "query", "document"]


class MAR(SentenceTransformer):
    """An asymmetric retriever: queries by a small encoder, documents by a large one, one vector space.

    The saved form is a plain sentence-transformers folder (`SentenceTransformer(folder)` loads it). This
    class adds building from two encoders, loading of only one route, `encode_queries` and `encode_corpus`,
    and the checks that make a mismatch fail early.

    Example:
        ```python
        from mar_st import MAR

        mar = MAR.from_pretrained("mar")                       # both routes
        online = MAR.from_pretrained("mar", routes="query")    # touches no document weight
        scores = online.similarity(online.encode_queries(["头疼吃什么药"]), mar.encode_corpus(documents))
        ```
    """

    #: Modules of this package that sentence-transformers may load without `trust_remote_code`.
    _module_classes = OWN_MODULES

    def __init__(
        self,
        model_name_or_path: str | Path | None = None,
        *,
        saved_routes: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        if model_name_or_path is None:
            super().__init__(**kwargs)
        else:
            source = model_source(model_name_or_path)
            if not has_routes(source, **{name: kwargs[name] for name in HUB_OPTIONS if name in kwargs}):
                raise MarError(
                    f"{source} is not a saved MAR: expected a modules.json with a Router. Load a model "
                    "without routes with SentenceTransformer, or build a MAR with MAR.from_encoders."
                )
            self._router_loader = RouterLoader(saved_routes)
            with loading_of(source):
                super().__init__(source, **kwargs)
            check_weights(self, source)
        if not isinstance(self[0], Router) or not {"query", "document"} & set(self.routes):
            raise MarError(
                "A MAR starts with a Router that has a 'query' or a 'document' route; this model starts with "
                f"{type(self[0]).__name__}. Load it with SentenceTransformer, or build a MAR with "
                "MAR.from_encoders."
            )
        widths = {}
        for name in self.routes:
            encoder, *rest = self.route_modules(name)
            weights = [weight for weight in encoder.parameters() if weight.is_floating_point()]
            for module in rest:
                if isinstance(module, Dense) and weights:
                    module.to(weights[0].dtype)
                if is_truncation(module):
                    module.requires_grad_(False)
            with loading_of(model_name_or_path):  # a damaged configuration may give no number as width
                widths[name] = width([encoder, *rest])
        if len(set(widths.values())) > 1:
            raise MarError(
                f"The routes end in different widths ({widths}); scores between them are undefined. Cut the "
                "wider one with truncation, or build with MAR.from_encoders(dim=...)."
            )

    # -- building and loading --

    @classmethod
    def from_encoders(
        cls,
        query: EncoderSource,
        document: EncoderSource,
        *,
        prompts: Mapping[str, str] | None = None,
        max_length: int | None = None,
        model_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Build a MAR from a query encoder and a document encoder.

        The document vector is cut to `dim` (its first dimensions, Matryoshka), there is no projection layer.

        Args:
            query: BERT-style encoder (`gte`, `bert`, `xlm-roberta`, `modernbert`, ...): folder, Hub name or
                `(config, tokenizer)`. Pooled at CLS.
            document: Causal LM (`qwen3`, `qwen2`, ...) in the same forms. EOS is appended and pooled.
            prompts: Stored prompts by name, see `mar_st.model.encoders.PROMPT_NAMES`; default those that the
                models were saved with by sentence-transformers (for queries those of the query encoder, else
                of the document encoder), else the published ones.
            max_length: Maximum number of tokens per text on both sides; default 512, or a model's own limit.
            model_kwargs: Passed to transformers for both sides (`dtype`, `attn_implementation`, ...).
            **options: Further arguments of `from_modules`: `dim`, `renormalise`, `device`.

        Returns:
            The model, in evaluation mode, both routes loaded.

        Raises:
            MarError: Widths do not fit, or a tokenizer does not fit its encoder (sizes in the message).
        """
        loading: dict[str, Any] = {"max_length": max_length, "model_kwargs": model_kwargs}
        if prompts is None:
            prompts = source_prompts(query, document)
        modules = [load_encoder(query, "query", **loading), load_encoder(document, "document", **loading)]
        return cls.from_modules(*modules, prompts=prompts, **options)

    @classmethod
    def from_modules(
        cls,
        query: Sequence[Module],
        document: Sequence[Module],
        *,
        dim: int | None = None,
        renormalise: bool = True,
        prompts: Mapping[str, str] | None = None,
        device: str | None = None,
    ) -> Self:
        """Build a MAR from the modules of both sides, as `mar_st.model.encoders.load_encoder` gives them.

        Args:
            query: Modules of the query encoder.
            document: Modules of the document encoder.
            dim: Width of the shared space; default the query encoder's width, which it must equal.
            renormalise: Cut before the L2 normalisation, so that scores are cosines (default). `False` cuts
                after it and scores by dot product, as the released code of the authors does.
            prompts: Stored prompts by name; default the published ones.
            device: Device of the model; default the best one present.

        Raises:
            MarError: The widths do not fit.
        """
        own, full = width(query), width(document)
        dim = dim or own
        if own != dim or full < dim:
            raise MarError(
                f"A MAR of {dim} dimensions needs a query encoder of {dim} and a document encoder of at "
                f"least {dim} dimensions; the query encoder has {own}, the document encoder {full}."
            )
        cut = [truncation(full, dim)] if full > dim else []
        before, after = ([], [Normalize()]) if renormalise else ([Normalize()], [])
        chains = {"query": [*query, *before, *after], "document": [*document, *before, *cut, *after]}
        modules = arrange(chains)
        return cls(
            modules=modules,
            prompts={"document": "", **(PUBLISHED_PROMPTS if prompts is None else prompts)},
            similarity_fn_name="cosine" if renormalise else "dot",
            device=device,
        ).eval()

    @classmethod
    def from_pretrained(
        cls, path: str | Path, *, routes: Routes = "both", query: str | None = None, **kwargs: Any
    ) -> Self:
        """Load a saved MAR, whole or one route of it.

        With `routes="query"` neither the weights nor the files of the document encoder are opened; its
        folders may be absent. The same holds for all query encoders but the one that `query` names.

        Args:
            path: Folder, a name of this project (`mar-mini`, see `mar_st.model.names`), or Hub name.
            routes: Which side to load.
            query: Name of the query encoder to load as the query route, if the folder holds several for
                one document space (`query-small`, ...; see `mar_st.model.family`). Default `query`; with
                `routes="both"` and no name, all are loaded.
            **kwargs: As for `SentenceTransformer` (`device`, `backend`, `model_kwargs`, `token`, ...).

        Raises:
            MarError: `routes` is unknown, or the folder has no such route, is not a MAR or holds damaged
                weights.
        """
        if routes not in ("both", "query", "document"):
            raise MarError(f"routes is 'both', 'query' or 'document'; got {routes!r}.")
        if query is not None and routes == "document":
            raise MarError(f"query={query!r} names a query encoder, but routes='document' loads none.")
        saved = {"query": query or "query", "document": "document"}
        wanted = {name: saved[name] for name in saved if routes in ("both", name)}
        whole = routes == "both" and query is None
        return cls(path, saved_routes=None if whole else wanted, **kwargs).eval()

    def _load_module_class_from_ref(self, class_ref: str, *args: Any, **kwargs: Any) -> Any:
        if class_ref.endswith(".Router"):
            return self._router_loader
        return super()._load_module_class_from_ref(class_ref, *args, **kwargs)

    # -- its parts --

    @property
    def routes(self) -> tuple[str, ...]:
        """Return the names of the loaded routes, `query` first and `document` last."""
        router: Any = self[0]
        names = getattr(router, "sub_modules", ())
        return tuple(sorted(names, key=lambda name: (name == "document", name != "query")))

    def route_modules(self, name: str) -> list[Module]:
        """Return the modules of one route in order, including those that routes share.

        Raises:
            MarError: The route is not loaded.
        """
        if name not in self.routes:
            raise MarError(
                f"The {name} route is not loaded (loaded: {', '.join(self.routes)}). "
                f"Load it with MAR.from_pretrained(path, routes='both') or routes={name!r}."
            )
        modules: list[Any] = route(self, name)
        return modules

    def encoder(self, route: str) -> SentenceTransformer:
        """Return one side as a symmetric sentence-transformers model that shares its weights.

        It has neither truncation nor prompts.
        """
        modules: list[Any] = [
            module
            for module in self.route_modules(route)
            if not is_truncation(module) and not isinstance(module, Normalize)
        ]
        return SentenceTransformer(modules=[*modules, Normalize()], device=str(self.device))

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Save as sentence-transformers does; see `mar_st.modules.layout` for modules of this package.

        Raises:
            MarError: An encoder carries an adapter that is not merged.
        """
        for name in self.routes:
            if has_adapter(self.route_modules(name)[0]):
                raise MarError(
                    f"The {name} encoder carries an adapter that is not merged, and a saved MAR holds whole "
                    f"encoders. Merge it first: mar_st.model.adapters.merge_lora("
                    f"mar.route_modules({name!r})[0])."
                )
        super().save(path, *args, **kwargs)
        for folder in routers(Path(path)):  # own modules are listed separately
            write_router(folder, read_router(folder))

    def _get_model_config(self) -> dict[str, Any]:
        # A saved model must load even if only sentence-transformers is installed.
        return {**super()._get_model_config(), "model_type": SentenceTransformer.__name__}

    # -- encoding --

    def encode(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Encode texts as `SentenceTransformer.encode` does, but always return float32.

        Scores between the routes need one dtype.

        Raises:
            ValueError: No `task` is given and the model has no default route.
        """
        return _float32(super().encode(inputs, *args, **kwargs))

    def encode_queries(
        self, queries: str | Sequence[str], *, task: Task = "retrieval", **kwargs: Any
    ) -> np.ndarray:
        """Encode queries with the query encoder.

        Args:
            queries: One text or several.
            task: Chooses the stored prompt: `retrieval`, `rerank` or `sts`.
            **kwargs: As for `SentenceTransformer.encode` (`batch_size`, `convert_to_tensor`, `prompt`, ...).
                `prompt=""` leaves the stored prompt out.

        Returns:
            float32 array `(len(queries), dim)`, or `(dim,)` for a single text.

        Raises:
            MarError: The query route is not loaded, or the task is unknown.
        """
        self.route_modules("query")
        if task not in PROMPT_NAMES:
            raise MarError(f"Unknown task {task!r}; choose one of {', '.join(PROMPT_NAMES)}.")
        name = PROMPT_NAMES[task]
        if name in self.prompts and kwargs.get("prompt") is None and kwargs.get("prompt_name") is None:
            kwargs["prompt_name"] = name
        vectors: np.ndarray = self.encode(queries, task="query", **kwargs)
        return vectors

    def encode_document(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Encode documents as sentence-transformers does; takes `{title, text}` dicts, as `encode_corpus`."""
        single = isinstance(inputs, str | Mapping)
        texts: Any = join_document(inputs) if single else [join_document(entry) for entry in inputs]
        return super().encode_document(texts, *args, **kwargs)

    def encode_corpus(self, documents: Document | Sequence[Document], **kwargs: Any) -> np.ndarray:
        """Encode documents with the document encoder, after the stored prompt `document`, if it has one.

        Args:
            documents: One document or several; each a string or a `{title, text}` dict (joined by a newline).
            **kwargs: As for `SentenceTransformer.encode`; `prompt=""` leaves the stored prompt out.

        Returns:
            float32 array `(len(documents), dim)`, or `(dim,)` for a single document.

        Raises:
            MarError: The document route is not loaded.
        """
        self.route_modules("document")
        vectors: np.ndarray = self.encode_document(documents, **kwargs)
        return vectors


def open_model(
    source: str | Path,
    *,
    routes: Routes = "both",
    query: str | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Load a model in evaluation mode; a `MAR` if it has routes.

    Unlike `SentenceTransformer(source)`, this needs no `trust_remote_code` for modules of this package, such
    as a lookup encoder. On a CPU without instructions for half precision, weights in half precision are
    converted to float32 (`use_native_dtype`). A tokenizer without a padding token gets one.

    Args:
        source: Folder, Hub name, or name of a model of this project.
        routes: Which side of a model with routes to load.
        query: Name of the query encoder to load, if the model has several; see `MAR.from_pretrained`.
        **options: As for `SentenceTransformer`.

    Raises:
        MarError: The model does not exist, has no such route or query encoder, or has missing or damaged
            files.
    """
    path = model_source(source)
    if has_routes(path):
        model: SentenceTransformer = MAR.from_pretrained(path, routes=routes, query=query, **options)
    elif query is not None:
        raise MarError(
            f"{source} is a model without routes: expected a MAR that has the query encoder {query!r}. Leave "
            "out the name of the query encoder, or give such a MAR."
        )
    else:
        with loading_of(path):
            model = SentenceTransformer._load_with_module_classes(path, OWN_MODULES, **options).eval()
            check_weights(model, path)
            check_tokenizer(getattr(model[0], "tokenizer", None), path)
    use_native_dtype(model, options.get("model_kwargs"))
    return model


def _float32(vectors: Any) -> Any:
    """Convert half-precision vectors in any container to float32; return anything else unchanged."""
    if isinstance(vectors, list):
        return [_float32(vector) for vector in vectors]
    if isinstance(vectors, torch.Tensor) and vectors.dtype in (torch.float16, torch.bfloat16):
        return vectors.float()
    if isinstance(vectors, np.ndarray) and vectors.dtype == np.float16:
        return vectors.astype(np.float32)
    return vectors
