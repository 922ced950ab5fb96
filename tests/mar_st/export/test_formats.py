"""Tests that an export format needs no code besides its class to be written, measured and listed."""

from __future__ import annotations

import pytest

from mar_st.commands import export as command
from mar_st.export import ExportError, export
from mar_st.export.formats import GRAPHS, LOOKUPS, GraphFormat, graph_format
from mar_st.export.graphs.openvino import OpenVINOGraphs


@pytest.fixture
def registering(monkeypatch):
    """Forgets the formats that a test registers."""
    monkeypatch.setattr(GRAPHS, "registered", dict(GRAPHS.classes()))
    monkeypatch.setattr(GRAPHS, "after", dict(GRAPHS.after))


def test_formats_are_listed_in_order():
    assert list(GRAPHS.classes()) == ["native", "openvino", "onnx"]
    assert list(LOOKUPS.classes()) == ["numpy", "lookup-json"]


@pytest.mark.thorough
def test_a_new_format_is_written_and_measured(registering, gte_folder, tmp_path):
    finished = []

    @graph_format("float", after="onnx")
    class FloatGraphs(OpenVINOGraphs):
        """OpenVINO in float32 and nothing else."""

        FORMS = ("fp32",)

        def finish(self, kept):
            finished.append(sorted(kept))

    listing = export(
        gte_folder, tmp_path / "out", formats=("float",), weight_formats=("fp32", "int8"), threads=1,
        show_progress=False,
    )  # fmt: skip
    assert list(listing.variants) == ["openvino-fp32"]
    assert listing.variants["openvino-fp32"].report["cosine_min"] > 0.999999
    assert listing.refused == {}
    assert finished == [["openvino-fp32"]]
    with pytest.raises(ExportError, match="format is one of native, openvino, onnx, float; got flat"):
        export(gte_folder, tmp_path / "other", formats=("flat",))


def test_a_format_without_write_is_refused(registering):
    with pytest.raises(TypeError, match="Format 'half': GraphFormat has to define __init__, write"):
        graph_format("half")(GraphFormat)


def test_the_help_names_every_format():
    text = command.FORMATS_HELP
    assert all(name in text for name in (*GRAPHS.classes(), *LOOKUPS.classes()))
