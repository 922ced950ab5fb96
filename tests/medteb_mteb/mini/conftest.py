from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from medteb_mteb.mini import generate
from medteb_mteb.mini.cells import World
from medteb_mteb.mini.knowledge import load_knowledge

if TYPE_CHECKING:
    from medteb_mteb.mini.edition import MiniEdition

PACKAGED = Path(__file__).parents[3] / "tasks"


@pytest.fixture(scope="session")
def packaged() -> Path:
    return PACKAGED


@pytest.fixture(scope="session")
def world() -> World:
    return World(load_knowledge())


@pytest.fixture(scope="session")
def edition() -> MiniEdition:
    return generate(42)
