"""Identity of a folder by its files, and of a Hub name by its commit."""

from __future__ import annotations

import os
import shutil

import huggingface_hub
import pytest

from mar_st.model.identity import model_digest


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "1_Pooling" / "config.json").write_text('{"mode": "cls"}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_a_copy_in_another_place_is_the_same_model(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "config.json", (1, 1))
    assert model_digest(str(tmp_path / "copy")) == model_digest(str(folder))


def test_a_model_card_is_no_part_of_the_model(folder):
    before = model_digest(str(folder))
    (folder / "README.md").write_text("# Model", encoding="utf-8")
    assert model_digest(str(folder)) == before


def _content(folder):
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    (folder / "model.safetensors").write_bytes(b"Weights")
    os.utime(folder / "model.safetensors", ns=(stamp + 1_000_000, stamp + 1_000_000))


def _name(folder):
    (folder / "model.safetensors").rename(folder / "other.safetensors")


def _place(folder):
    (folder / "1_Pooling").rename(folder / "2_Pooling")


def _more(folder):
    (folder / "empty.json").write_bytes(b"")


@pytest.mark.parametrize("change", [_content, _name, _place, _more])
def test_other_files_are_another_model(folder, change):
    before = model_digest(str(folder))
    change(folder)
    assert model_digest(str(folder)) != before


@pytest.mark.parametrize(
    ("cached", "revision", "identity"),
    [
        ("/cache/models--org--name/snapshots/abc123/config.json", None, "hub:org/name@abc123"),
        ("/cache/models--org--name/snapshots/abc123/config.json", "v2", "hub:org/name@abc123"),
        (None, "v2", "hub:org/name@v2"),
        (None, None, "hub:org/name@main"),
    ],
)
def test_a_hub_name_is_identified_by_the_commit_in_the_cache(monkeypatch, cached, revision, identity):
    asked = []

    def look(name, file, revision=None):
        asked.append((name, revision))
        return cached

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", look)
    assert model_digest("org/name", revision) == identity
    assert asked == [("org/name", revision)]
