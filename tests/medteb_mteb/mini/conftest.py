"""Worlds, splits and the packaged folders of the mini edition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from medteb_mteb.mini import generate, retrieval
from medteb_mteb.mini.cells import World
from medteb_mteb.mini.knowledge import load_knowledge

if TYPE_CHECKING:
    from medteb_mteb.mini.edition import MiniEdition
    from medteb_mteb.mini.retrieval import TestSplit

PACKAGED = Path(__file__).parents[3] / "tasks"


@pytest.fixture(scope="session")
def packaged() -> Path:
    return PACKAGED


@pytest.fixture(scope="session")
def world() -> World:
    return World(load_knowledge())


@pytest.fixture(scope="session")
def small_world() -> World:
    """A few rows of each table."""
    kb = load_knowledge()
    return World(
        replace(
            kb,
            conditions=kb.conditions[:16],
            drugs=kb.drugs[:12],
            symptoms=kb.symptoms[:12],
            exams=kb.exams[:8],
        )
    )


@pytest.fixture(scope="session")
def small_split(small_world: World) -> TestSplit:
    """The test split of the small world: 240 documents, and 15 queries of each task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "N_DOCUMENTS", 240)
        patch.setattr(retrieval, "N_QUERIES", 15)
        return retrieval.build_test(small_world, 42)


@pytest.fixture(scope="session")
def edition() -> MiniEdition:
    return generate(42)
