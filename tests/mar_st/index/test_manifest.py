"""Index folders with false manifests: named files are checked, and files outside the folder are safe."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mar_st.encode import write_vectors
from mar_st.errors import MarError
from mar_st.index import Index, IndexingError, Searcher, add, build_index, compact, delete
from mar_st.index.manifest import files_of, publish, read_manifest
from tests.mar_st.index.conftest import Library, clustered, make_library
from tests.mar_st.index.parts import part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library(tmp_path_factory.mktemp("small"), count=120)


@pytest.fixture
def index(small: Library, tmp_path: Path) -> Path:
    out = tmp_path / "index"
    build_index(small.open, out, corpus=small.corpus, kind="exact", tokens="char-bigram", progress=False)
    return out


def rewrite(index: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = index / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_files_behind_a_linked_segments_folder_are_kept(index: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.move(index / "segments", home)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "key").write_text("secret")
    (index / "segments").symlink_to(home)
    before = sorted(home.rglob("*"))
    with pytest.raises(IndexingError, match="symbolic link"):
        Index.open(index)
    for change in (lambda: delete(index, ["d1"]), lambda: compact(index, progress=False)):
        with pytest.raises(IndexingError, match="symbolic link"):
            change()
    assert sorted(home.rglob("*")) == before


def test_a_build_does_not_write_through_a_link(small: Library, tmp_path: Path) -> None:
    out, home = tmp_path / "index", tmp_path / "home"
    build_index(small.open, out, corpus=small.corpus, kind="exact", bm25=False, progress=False)
    manifest = json.loads((out / "manifest.json").read_text())
    plan = {"asked": {"vectors": manifest["vectors"]["digest"]}}
    shutil.rmtree(out)
    out.mkdir()
    home.mkdir()
    (out / "build.json").write_text(json.dumps(plan))
    (out / "segments").symlink_to(home)
    with pytest.raises(IndexingError, match="symbolic link"):
        build_index(small.open, out, corpus=small.corpus, kind="exact", bm25=False, progress=False)
    assert not list(home.iterdir())


@pytest.mark.parametrize("name", ["manifest.json.part", ".lock"])
def test_a_planted_link_is_not_written_through(index: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "profile").write_text("precious")
    (index / name).unlink(missing_ok=True)
    (index / name).symlink_to(tmp_path / "profile")
    with pytest.raises(IndexingError, match="symbolic link"):
        delete(index, ["d1"])
    assert (tmp_path / "profile").read_text() == "precious"


def escaped(content: dict[str, Any], what: str) -> None:
    segment = content["segments"][0]
    if what == "segment":
        segment["name"] = "x/../../../ESCAPED"
    elif what == "file":
        segment["files"]["x/../../../ESCAPED"] = {"bytes": 1, "sha256": "0" * 64}
    elif what == "deleted":
        segment["deleted"] = {"file": "x/../../../ESCAPED", "count": 1, "bytes": 1, "sha256": "0" * 64}
        segment["live"] -= 1
    else:
        content["retired"] = ["x/../../../ESCAPED"]  # what the next update would delete


@pytest.mark.parametrize("what", ["segment", "file", "deleted", "retired"])
def test_a_name_that_leaves_the_folder_is_one_error(index: Path, tmp_path: Path, what: str) -> None:
    (tmp_path / "ESCAPED").write_text("x")
    rewrite(index, lambda content: escaped(content, what))
    for use in (lambda: Index.open(index), lambda: delete(index, ["d1"])):
        with pytest.raises(IndexingError, match="ESCAPED"):
            use()
    assert (tmp_path / "ESCAPED").read_text() == "x"


def test_a_linked_file_is_not_read(index: Path, tmp_path: Path) -> None:
    file = index / "segments" / "000001" / "vectors.npy"
    shutil.move(file, tmp_path / "secret.npy")
    file.symlink_to(tmp_path / "secret.npy")
    with pytest.raises(IndexingError, match="symbolic link out of"):
        Index.open(index)


@pytest.mark.parametrize(
    ("field", "value"),
    [("generation", "1"), ("generation", 0), ("generation", True), ("dim", -3), ("dim", None),
     ("similarity", "l2"), ("segments", []), ("segments", [7]), ("segments", None), ("model", [1]),
     ("model", {"name": 3}), ("fields", {"a": "date"}), ("texts", 1), ("bm25", {"tokens": "x"}), ("bm25", 7),
     ("search", {"ef": "9"}), ("efforts", {"a": {}}), ("efforts", {"a": {"search": {"ef": -1}}}),
     ("matches", {"a": {}}), ("matches", {"a": {"threshold": "0.5"}}), ("matches", []),
     ("matches", {"a": {"threshold": float("nan")}}), ("space", 3), ("efforts", {"a": {"search": {}}}),
     ("matches", {"a": {"threshold": 0.5}}), ("matches", {"a": {"threshold": 0.5, "query": None}}),
     ("params", None)],
)  # fmt: skip
def test_a_damaged_manifest_is_one_error(index: Path, field: str, value: object) -> None:
    rewrite(index, lambda content: content.update({field: value}))
    with pytest.raises(IndexingError, match=r"manifest\.json is damaged"):
        Index.open(index)


@pytest.mark.parametrize("swapped", ["string", "number", "boolean"])
def test_a_field_of_another_type_than_its_values_is_one_error(index: Path, swapped: str) -> None:
    assert read_manifest(index)["fields"]["year"] == "integer"
    rewrite(index, lambda content: content["fields"].update(year=swapped))
    with pytest.raises(IndexingError, match=rf"'year' is of type {swapped} in the index, but .* as int64\."):
        Index.open(index)


def test_a_manifest_without_build_settings_is_one_error(index: Path) -> None:
    rewrite(index, lambda content: content.pop("params"))
    with pytest.raises(IndexingError, match=r"manifest\.json is damaged"):
        compact(index, progress=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "2"), ("name", "000009"), ("count", 7), ("live", 0), ("kind", "annoy"), ("files", None),
     ("files", {"vectors.npy": {}}), ("deleted", {"count": 1})],
)  # fmt: skip
def test_a_damaged_segment_is_one_error(index: Path, field: str, value: object) -> None:
    rewrite(index, lambda content: content["segments"][0].update({field: value}))
    with pytest.raises(IndexingError, match=r"manifest\.json is damaged"):
        Index.open(index)


def test_a_size_that_differs_from_the_manifest_is_refused(index: Path) -> None:
    rewrite(index, lambda content: content.update({"dim": 31}))
    with pytest.raises(IndexingError, match=r"vectors\.npy holds values of shape \(120, 32\); \(120, 31\)"):
        Index.open(index)


@pytest.mark.parametrize(
    "header", ["{'descr': '<f4', 'fortran_order': True, 'shape': (120, 32), }", "nonsense", "{'descr': 'O'}"]
)
def test_a_damaged_header_is_one_error(index: Path, header: str) -> None:
    file = index / "segments" / "000001" / "vectors.npy"
    content = bytearray(file.read_bytes())
    content[10:128] = header.encode().ljust(117) + b"\n"
    file.write_bytes(content)
    rewrite(
        index, lambda manifest: manifest["segments"][0]["files"]["vectors.npy"].pop("sample")
    )  # forged, or old
    with pytest.raises(IndexingError, match=r"vectors\.npy"):
        Index.open(index)


def test_only_files_that_were_listed_are_deleted(index: Path, small: Library, tmp_path: Path) -> None:
    own = index / "segments" / "notes.txt"
    own.write_text("mine")
    more = part(tmp_path / "more", range(500, 520))
    add(index, more.folder, corpus=more.corpus, progress=False)
    first = read_manifest(index)
    assert first["retired"] == []
    delete(index, ["d3"])
    delete(index, ["d4"])
    second = read_manifest(index)
    assert second["retired"] == ["deleted/000003-000001.npy"]
    assert (index / "segments" / second["retired"][0]).exists()  # a reader may be about to open it
    compact(index, progress=False)
    assert not (index / "segments" / second["retired"][0]).exists()
    assert set(read_manifest(index)["retired"]) == set(files_of(second))
    delete(index, ["d5"])
    listed = {*files_of(read_manifest(index)), *read_manifest(index)["retired"], "notes.txt"}
    existing = {path.relative_to(index / "segments").as_posix()
             for path in (index / "segments").rglob("*") if path.is_file()}  # fmt: skip
    assert existing == listed
    assert own.read_text() == "mine"


def test_an_index_without_a_list_of_retired_files_can_be_updated(index: Path) -> None:
    rewrite(index, lambda content: content.pop("retired", None))
    delete(index, ["d3"])
    assert len(Index.open(index)) == 119
    before = read_manifest(index)
    after = publish(index, before, {**before, "generation": before["generation"] + 1})
    assert after["retired"] == []


def test_remains_of_a_killed_update_are_removed(index: Path) -> None:
    folder = index / "segments" / "000002"
    folder.mkdir()
    (folder / "vectors.npy").write_text("torn")
    (index / "segments" / "deleted").mkdir()
    torn = index / "segments" / "deleted" / "000002-000007.npy"
    torn.write_text("torn")
    delete(index, ["d3"])
    assert not folder.exists()
    assert not torn.exists()


def test_an_open_index_answers_by_words_after_updates_and_compacting(
    index: Path, small: Library, tmp_path: Path
) -> None:
    searcher = Searcher.open(Index.open(index), None)
    more = part(tmp_path / "more", range(500, 520))
    add(index, more.folder, corpus=more.corpus, progress=False)
    compact(index, progress=False)
    delete(index, ["d3"])
    delete(index, ["d4"])
    assert not (index / "segments" / "000001").exists()
    fresh = tmp_path / "fresh"
    build_index(small.open, fresh, corpus=small.corpus, kind="exact", tokens="char-bigram", progress=False)
    expected = Index.open(fresh).find_words(["高血压怎么办"], 10, None)
    scored = searcher.index.find_words(["高血压怎么办"], 10, None)
    assert scored.keys == expected.keys
    np.testing.assert_array_equal(scored.scores, expected.scores)


def flip(path: Path, place: int, value: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[place : place + len(value)] = value
    path.write_bytes(content)


@pytest.mark.parametrize(("similarity", "value"), [("cosine", 3.0), ("cosine", np.inf), ("dot", np.inf)])
def test_an_impossible_score_is_an_error(tmp_path: Path, similarity: str, value: float) -> None:
    vectors = clustered(4000, 32)
    names = [f"d{row}" for row in range(4000)]
    write_vectors(tmp_path / "v", names, vectors, similarity=similarity)
    out = tmp_path / "index"
    build_index(tmp_path / "v", out, kind="exact", progress=False)
    path = out / "segments" / "000001" / "vectors.npy"
    place = path.stat().st_size // 2 // 128 * 128 + 640  # between two sampled blocks
    row = (place - 128) // 128
    flip(path, place, np.full(32, value, dtype=np.float32).tobytes())
    index = Index.open(out)
    with pytest.raises(IndexingError, match=rf"is not a possible {similarity} score.*mar verify"):
        index.search(np.abs(vectors[row : row + 1]), 4000)
    with pytest.raises(IndexingError, match="holds other bytes"):
        index.verify()


def test_scores_of_float16_are_within_the_tolerance(tmp_path: Path) -> None:
    vectors = clustered(500, 1024)
    write_vectors(tmp_path / "v", [f"d{row}" for row in range(500)], vectors)
    build_index(tmp_path / "v", tmp_path / "index", kind="int8", progress=False)
    _, scores = Index.open(tmp_path / "index").search(vectors, 1)
    assert 0.999 < scores.min() <= scores.max() < 1.001


def test_a_query_of_huge_length_is_refused(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v", ["a", "b"], np.full((2, 8), 2.0, np.float32), similarity="dot")
    build_index(tmp_path / "v", tmp_path / "index", kind="exact", progress=False)
    with pytest.raises(IndexingError, match=r"beyond 1e\+15"):
        Index.open(tmp_path / "index").search(np.full((1, 8), 3e38, np.float32), 1)


@pytest.mark.parametrize("name", ["vectors.npy", "rows.arrow", "documents.arrow", "bm25/data.csc.index.npy"])
def test_damage_is_found_when_an_index_is_opened(index: Path, name: str) -> None:
    path = index / "segments" / "000001" / name
    flip(path, path.stat().st_size // 2, bytes([path.read_bytes()[path.stat().st_size // 2] ^ 1]))
    with pytest.raises(IndexingError, match="holds other bytes than were written"):
        Index.open(index)


def test_no_index_is_built_from_damaged_vectors(index: Path, small: Library, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors"
    shutil.copytree(small.folder, vectors)
    path = vectors / "shards" / "000000.safetensors"
    flip(path, path.stat().st_size - 4, b"\x01\x02")
    for use in (
        lambda: build_index(vectors, tmp_path / "other", kind="exact", progress=False),
        lambda: build_index(vectors, f"milvus:{tmp_path}/other.db", kind="exact", progress=False),
        lambda: add(index, vectors, corpus=small.corpus, progress=False),
    ):
        with pytest.raises(MarError, match="holds other bytes than were written"):
            use()
    assert not (tmp_path / "other").exists()


def test_a_damaged_index_is_not_compacted(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v", [f"d{row}" for row in range(4000)], clustered(4000, 32))
    out = tmp_path / "index"
    build_index(tmp_path / "v", out, kind="exact", progress=False)
    path = out / "segments" / "000001" / "vectors.npy"
    flip(path, path.stat().st_size // 2 // 128 * 128 + 640, b"\x01")
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(IndexingError, match="holds other bytes than were written"):
        compact(out, progress=False)
    assert (out / "manifest.json").read_bytes() == before
