"""Classes registered by the modules of a folder."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod

import pytest

from mar_st.files.registered import Registered


class Shape(ABC):
    @abstractmethod
    def corners(self) -> int: ...


SOURCE = """
import {folder}
class Here:
    def corners(self):
        return {corners}
{folder}.SHAPES.add("{name}", Here, "{after}")
"""


@pytest.fixture
def shapes(tmp_path, monkeypatch):
    """Three shapes in a folder, registered when their modules are imported."""
    folder = tmp_path / "folder_of_shapes"
    folder.mkdir()
    for name, corners, after in (("star", 10, "triangle"), ("right-angle", 3, ""), ("triangle", 3, "")):
        text = SOURCE.format(folder=folder.name, name=name, corners=corners, after=after)
        (folder / f"{name.replace('-', '_')}.py").write_text(text, encoding="utf-8")
    (folder / "__init__.py").write_text(
        f"from mar_st.files.registered import Registered\nSHAPES = Registered({folder.name!r}, 'Shape')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield __import__(folder.name).SHAPES
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_names_and_single_classes_import_no_other_module(shapes):
    assert shapes.names() == ("right-angle", "star", "triangle")
    assert shapes.registered == {}
    assert shapes.get("right-angle")().corners() == 3
    assert list(shapes.registered) == ["right-angle"]
    assert shapes.get("os") is None
    assert shapes.get("../shapes") is None


def test_a_class_is_listed_after_the_one_it_names(shapes):
    names = list(shapes.classes())
    assert set(names) == {"right-angle", "star", "triangle"}
    assert names.index("star") > names.index("triangle")


def test_invalid_classes_are_not_registered():
    shapes: Registered[Shape] = Registered("folder", "Shape", reserved=("any",))

    def made(module):
        return type("Made", (Shape,), {"__module__": module, "corners": lambda self: 1})

    shapes.add("round", made("folder.round"))
    with pytest.raises(ValueError, match=r"Shape 'round': the name is taken by folder\.round"):
        shapes.add("round", made("elsewhere"))
    with pytest.raises(ValueError, match="Shape 'any': the name is taken"):
        shapes.add("any", made("elsewhere"))
    with pytest.raises(ValueError, match="Shape 'oval' belongs in a module of the same name, not 'ellipse'"):
        shapes.add("oval", made("folder.ellipse"))
    with pytest.raises(TypeError, match="Shape 'oval': Shape has to define corners"):
        shapes.add("oval", Shape)
