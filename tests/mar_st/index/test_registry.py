"""A kind of index is one class in one file: all that is known of it comes from the class."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mar_st.cli import app
from mar_st.commands import index as command
from mar_st.index import Index, IndexingError, add, build_index, compact, kinds, registry
from mar_st.index.kind import IndexKind
from tests.mar_st.index.conftest import make_library

PAGE = Path(__file__).parents[3] / "docs/concepts/architecture.md"


@pytest.fixture
def registering(monkeypatch):
    """Forgets the kinds that a test registers."""
    monkeypatch.setattr(registry.INDEX_KINDS, "registered", dict(registry.registered()))
    monkeypatch.setattr(registry.INDEX_KINDS, "after", dict(registry.INDEX_KINDS.after))


@pytest.fixture
def int4(registering, tmp_path, monkeypatch):
    """The example of the documentation, added as a file among the kinds."""
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [text for text in examples if "@kind(" in text]
    folder = tmp_path / "more-kinds"
    folder.mkdir()
    (folder / "int4.py").write_text(example, encoding="utf-8")
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(folder)])
    yield "int4"
    sys.modules.pop(f"{kinds.__name__}.int4", None)
    vars(kinds).pop("int4", None)


@pytest.mark.thorough
def test_one_file_adds_a_kind_of_index(int4, tmp_path):
    library = make_library(tmp_path / "library", count=1200)
    more = make_library(tmp_path / "more", count=60, start=1200)
    out = tmp_path / "index"
    manifest = build_index(library.folder, out, corpus=library.corpus, kind=int4, progress=False)
    dim = manifest["dim"]
    assert (manifest["kind"], manifest["memory"]) == ("int4", 1200 * dim / 2)
    assert manifest["measured"]["reached"]
    assert manifest["search"] == {"rescore": manifest["search"]["rescore"]}
    ids, scores = Index.open(out).search(library.queries, 10)
    best, _ = library.best(10)
    assert np.mean([len({*names} & {*wanted}) / 10 for names, wanted in zip(ids, best, strict=True)]) > 0.9
    assert (np.diff(scores, axis=1) <= 0).all()
    add(out, more.folder, corpus=more.corpus, progress=False)
    assert compact(out, progress=False)["segments"][0]["kind"] == "int4"
    Index.open(out).verify()


@pytest.mark.thorough
def test_a_new_kind_is_measured_by_auto_and_refuses_settings(int4, tmp_path, monkeypatch):
    library = make_library(tmp_path / "library", count=1200)
    monkeypatch.setattr("mar_st.index.choose.FAST_ENOUGH_MS", 0.0)
    out = tmp_path / "index"
    manifest = build_index(library.folder, out, corpus=library.corpus, sample=300, bm25=False, progress=False)
    measured = [row["kind"] for row in manifest["choice"]["measured"]]
    assert list(dict.fromkeys(measured)) == ["exact", "int8", "binary", "int4", "hnsw", "ivf-pq"]
    with pytest.raises(IndexingError, match="int4 has no setting 'M'; it has none"):
        build_index(library.folder, tmp_path / "other", kind=int4, params={"M": 3}, progress=False)
    with pytest.raises(IndexingError, match="in Milvus are auto, exact, int8, hnsw, ivf-pq; got 'int4'"):
        build_index(library.folder, f"milvus:{tmp_path}/milvus.db", kind=int4, progress=False)


def test_the_command_lists_every_registered_kind():
    assert set(command.KIND_NAMES) == {"auto", *registry.registered()}
    result = CliRunner().invoke(app, ["index", "build", "vectors", "out", "--kind", "flat"])
    assert result.exit_code == 2
    assert "'flat' is not one of 'auto', 'binary'" in " ".join(result.output.split())


def test_taken_names_and_incomplete_kinds_are_refused(registering):
    with pytest.raises(ValueError, match=r"'hnsw': the name is taken by mar_st\.index\.kinds\.hnsw"):
        registry.kind("hnsw")(IndexKind)
    with pytest.raises(ValueError, match="Kind of index 'auto': the name is taken"):
        registry.kind("auto")(IndexKind)
    with pytest.raises(TypeError, match="'half': IndexKind has to define build, memory"):
        registry.kind("half")(IndexKind)
    misplaced = type("Misplaced", (IndexKind,), {"__module__": "mar_st.index.kinds.other"})
    with pytest.raises(ValueError, match="'half' belongs in a module of the same name, not 'other'"):
        registry.kind("half")(misplaced)
