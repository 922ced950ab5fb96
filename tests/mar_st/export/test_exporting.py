"""Tests of `export`: its files, the chosen variant and its errors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mar_st.export import ExportError, export
from mar_st.export.exporting import LossLimits, choose
from mar_st.online.encoders import load_query_encoder
from tests.mar_st.export.conftest import TEXTS, make_model, with_pairs


def _report(milliseconds, cosine, alone=1.0):
    return {"p50_ms": milliseconds, "cosine_mean": cosine, "cosine_min": cosine, "alone_cosine": alone}


@pytest.mark.parametrize(
    ("fp32", "bf16", "chosen"),
    [
        (_report(5.0, 1.0), _report(2.0, 0.999), "openvino-bf16"),
        (_report(2.0, 1.0), _report(5.0, 0.999), "openvino-fp32"),
        (_report(5.0, 1.0), _report(2.0, 0.9), "openvino-fp32"),  # the faster one loses too much
        (_report(5.0, 1.0), _report(2.0, 1.0, alone=0.9), "openvino-fp32"),  # and here, depends on the batch
        (_report(5.0, 0.9), _report(2.0, 0.8), "openvino-fp32"),  # neither is within the limits: the nearest
    ],
)
def test_the_fastest_within_the_limits_is_chosen(exported, fp32, bf16, chosen):
    _, listing = exported
    reports = {"openvino-fp32": fp32, "openvino-bf16": bf16}
    variants = {name: replace(listing.variants[name], report=report) for name, report in reports.items()}
    assert choose(replace(listing, variants=variants), LossLimits()) == chosen


@pytest.mark.parametrize(
    ("report", "holds"),
    [
        ({"alone_cosine": 1.0, "cosine_mean": 0.995}, True),
        ({"alone_cosine": 1.0, "cosine_mean": 0.98}, False),
        ({"alone_cosine": 1.0, "cosine_mean": 0.5, "ndcg_loss": 0.002}, True),
        ({"alone_cosine": 1.0, "cosine_mean": 1.0, "ndcg_loss": 0.0021}, False),
        ({"alone_cosine": 0.999, "cosine_mean": 1.0, "ndcg_loss": 0.0}, False),
    ],
)
def test_loss_limits_accept_or_reject_a_report(report, holds):
    assert LossLimits().hold(report) is holds


@pytest.mark.thorough
def test_the_loss_is_measured_on_a_task(gte_folder, tmp_path):
    task = tmp_path / "task"
    (task / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": f"d{i}", "text": text}, ensure_ascii=False) for i, text in enumerate(TEXTS)]
    (task / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    lines = [json.dumps({"_id": f"q{i}", "text": TEXTS[i][:3]}, ensure_ascii=False) for i in range(4)]
    (task / "queries.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(4))]
    (task / "qrels" / "test.tsv").write_text("\n".join(rows), encoding="utf-8")
    for name in ("out.part", "out.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("of the user", encoding="utf-8")
    listing = export(gte_folder, tmp_path / "out", weight_formats=("fp32",), task=str(task), threads=1,
                     show_progress=False)  # fmt: skip
    report = listing.variants["openvino-fp32"].report
    assert report["ndcg_loss"] == 0
    assert report["ndcg@10"] == listing.task["ndcg@10"] > 0.3
    assert (listing.task["queries"], listing.task["documents"]) == (4, 6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.old", "out.part", "task"]
    assert all((tmp_path / name / "notes").is_file() for name in ("out.part", "out.old"))


def test_an_existing_folder_is_kept(exported, gte_folder, tmp_path):
    out, _ = exported
    before = (out / "export.json").read_bytes()
    with pytest.raises(ExportError, match="exists"):
        export(gte_folder, out)
    assert (out / "export.json").read_bytes() == before
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ExportError, match="not an exported encoder"):
        export(gte_folder, other, overwrite=True)
    assert (other / "thesis.txt").is_file()


def test_wrong_arguments_are_refused(gte_folder, tmp_path):
    with pytest.raises(ExportError, match="weight format is one of fp32, bf16, int8; got int4"):
        export(gte_folder, tmp_path / "out", weight_formats=("int4",))
    with pytest.raises(ExportError, match="format is one of"):
        export(gte_folder, tmp_path / "out", formats=())
    with pytest.raises(ExportError, match="to calibrate on are for int8"):
        export(gte_folder, tmp_path / "out", weight_formats=("fp32",), calibrate=TEXTS)


@pytest.mark.slow
def test_an_encoder_with_vectors_of_token_pairs_is_exported(tmp_path):
    with_pairs(make_model(pooling="mean")).save(str(tmp_path / "model"))
    out = tmp_path / "out"
    listing = export(tmp_path / "model", out, formats=("openvino",), weight_formats=("fp32", "int8"),
                     threads=1, show_progress=False)  # fmt: skip
    assert listing.bigrams
    assert {"bigrams.keys.npy", "bigrams.first.npy", "bigrams.second.npy"} <= set(listing.files)
    original = load_query_encoder(tmp_path / "model").encode(TEXTS)
    exported = load_query_encoder(out, backend="openvino-fp32", threads=1).encode(TEXTS)
    np.testing.assert_allclose(exported, original, atol=1e-5)
    assert listing.variants["openvino-int8"].report["cosine_min"] > 0.97
    before = listing.identity(listing.variants["openvino-fp32"])
    changed = replace(listing, files={**listing.files, "bigrams.first.npy": {"bytes": 1, "sha256": "other"}})
    assert changed.identity(listing.variants["openvino-fp32"]) != before
