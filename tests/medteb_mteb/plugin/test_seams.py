"""Pieces of mteb's private state that registration needs: each is checked before anything is changed."""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.metadata import PackageNotFoundError

import pytest

from medteb_mteb.plugin import registry, seams
from medteb_mteb.plugin.seams import SEAMS, RegistryError, check_mteb


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: f"{seam.module}.{seam.name}")
def test_a_moved_piece_of_mteb_is_named_and_mteb_left_alone(stock, snapshot, monkeypatch, seam):
    before = snapshot()
    owner = functools.reduce(getattr, seam.name.split(".")[:-1], import_module(seam.module))
    with monkeypatch.context() as patch:
        patch.delattr(owner, seam.name.split(".")[-1])
        with pytest.raises(RegistryError) as caught:
            registry.register()
    message = str(caught.value)
    assert f"has no {seam.module}.{seam.name}" in message
    assert seam.used_for in message
    assert "medteb works with mteb 2.26" in message
    assert "pip install 'mteb~=2.26.0'" in message
    assert snapshot() == before


def test_a_piece_of_another_kind_is_refused(stock, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(import_module("mteb.get_tasks"), "TASK_LIST", [1])
        with pytest.raises(RegistryError, match=r"has a list as mteb.get_tasks.TASK_LIST"):
            registry.register()


@pytest.mark.parametrize(
    ("place", "name", "changed", "message"),
    [
        ("mteb.get_tasks", "_TASKS_REGISTRY", [], "has a list as mteb.get_tasks._TASKS_REGISTRY"),
        ("mteb.evaluate", "_requires_merge", "text", "has a str as mteb.evaluate._requires_merge"),
    ],
)
def test_a_piece_needs_its_type_or_its_attribute(monkeypatch, place, name, changed, message):
    check_mteb()
    monkeypatch.setattr(import_module(place), name, changed)
    with pytest.raises(RegistryError) as caught:
        check_mteb()
    assert message in str(caught.value)


def test_a_module_that_moved_is_named_though_no_version_is_known(monkeypatch):
    def unknown(name):
        raise PackageNotFoundError(name)

    gone = seams.Seam("mteb.gone.away", "TABLE", dict, "names of tables")
    monkeypatch.setattr(seams, "SEAMS", (*SEAMS, gone))
    monkeypatch.setattr(seams, "version", unknown)
    with pytest.raises(RegistryError) as caught:
        check_mteb()
    assert str(caught.value).startswith(
        "mteb of unknown version has no mteb.gone.away.TABLE, which medteb needs for names of tables. "
    )
