"""Names of a listing stay in its folder, and nothing is deleted elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mar_st.errors import MarError
from mar_st.files import delete_listed, listed_path, refuse_link, refuse_links

if TYPE_CHECKING:
    from pathlib import Path


class OwnError(MarError):
    """The caller's class."""


BAD = [
    "x/../../../ESCAPED", "..", ".", "", "/etc/passwd", "a/../b", "a//b", "a/", ".ssh/id", "a/.hidden",
    "C:\\x", "a\\..\\b", "a\nb", "a\x00b", "x" * 300, None, 7, ["a"],
]  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: object) -> None:
    with pytest.raises(OwnError, match=r"manifest\.json names .* not a file below"):
        listed_path(tmp_path, name, "manifest.json", OwnError)


@given(st.text(alphabet=st.sampled_from("ab./\\~文 \n:"), max_size=24))
def test_an_accepted_name_is_below_the_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "folder"
    try:
        path = listed_path(folder, name, "manifest.json")
    except MarError:
        return
    assert path.resolve().is_relative_to(folder.resolve())
    assert path != folder


@pytest.mark.parametrize(
    "name", ["000001", "000001/bm25/data.csc.index.npy", "query-small_0_Transformer", "权重 1.bin"]
)
def test_ordinary_names_are_accepted(tmp_path: Path, name: str) -> None:
    assert listed_path(tmp_path, name, "manifest.json") == tmp_path / name


def test_links_may_lead_to_files_of_the_folder_and_of_the_hubs_cache(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "abc", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "0123").write_text("x")
    (snapshot / "model.bin").symlink_to("../../blobs/0123")
    (snapshot / "same.bin").symlink_to("model.bin")
    assert listed_path(snapshot, "model.bin", "modules.json").read_text() == "x"
    assert listed_path(snapshot, "same.bin", "modules.json").read_text() == "x"
    (tmp_path / "secret").write_text("x")
    (snapshot / "out.bin").symlink_to(tmp_path / "secret")
    (snapshot / "folder").symlink_to(tmp_path)
    for name in ("out.bin", "folder/secret"):
        with pytest.raises(MarError, match="a symbolic link out of"):
            listed_path(snapshot, name, "modules.json")


def test_listed_files_are_deleted_and_others_stay(tmp_path: Path) -> None:
    for name in ("a/b/1", "a/b/2", "a/3", "4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    delete_listed(tmp_path, ["a/b/1", "a/b/2", "gone"], "manifest.json")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["3", "4", "a"]
    delete_listed(tmp_path, ["a/3"], "manifest.json")
    assert [path.name for path in tmp_path.iterdir()] == ["4"]


def test_nothing_is_deleted_through_a_link(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "folder" / "real"
    other.mkdir(parents=True)
    (other / "kept").write_text("x")
    (folder / "first").write_text("x")
    (folder / "link").symlink_to(other)
    with pytest.raises(OwnError, match="symbolic link"):
        delete_listed(folder, ["first", "link/kept"], "manifest.json", OwnError)
    assert (other / "kept").exists()
    assert (folder / "first").exists()


def test_links_anywhere_below_are_refused_and_the_folder_may_be_one(tmp_path: Path) -> None:
    real = tmp_path / "real" / "a" / "b"
    real.mkdir(parents=True)
    (tmp_path / "name").symlink_to(tmp_path / "real")
    refuse_links(tmp_path / "name", OwnError)
    (real / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OwnError, match="link is a symbolic link"):
        refuse_links(tmp_path / "name", OwnError)


def test_a_link_at_the_name_of_a_new_folder_is_refused(tmp_path: Path) -> None:
    refuse_link(tmp_path / "new", OwnError)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "missing")
    for name, target in (("dangling", "missing"), ("loop", "loop")):
        with pytest.raises(OwnError, match=f"{name} is a link; give .*{target}"):
            refuse_link(tmp_path / name, OwnError)
