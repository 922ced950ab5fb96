"""A TREC run in place of a model: its rankings are scored like those of a model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mar_st.data.trec import read_run
from mar_st.files import sha256
from medteb_mteb.models.local import RUN, local_meta

if TYPE_CHECKING:
    from pathlib import Path

    from mteb.models import ModelMeta

    from medteb_mteb.models.local import LocalModelMeta


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
        loader=partial(_load, path=path),
        name=f"{RUN}/{path.stem}",
        revision=sha256(path)[:16],
        model_type=["sparse"],
    )


def _load(name: str, revision: str | None = None, *, path: Path, **kwargs: Any) -> Ranked:
    del name, revision, kwargs
    return Ranked(path)
