"""A build as assets of Dagster: steps run once, by one engine; a refused gate blocks what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import yaml
from pydantic import Field
from tests.medteb_mteb.curation.diseases import DISEASES

from mar_st.errors import MarError
from medteb_mteb.curation import assets
from medteb_mteb.curation.build import BuildSettings, build
from medteb_mteb.curation.build_file import STEPS
from medteb_mteb.curation.step import Counts, Input, Step, StepSettings

dg = pytest.importorskip("dagster", reason="needs pip install 'medteb[dagster]'")


class GateSettings(StepSettings):
    source: Annotated[Path, Input("texts")] = Field(alias="in")


def refuse(settings):
    refused = (settings.out.parents[2] / "refuse").exists()
    (settings.out / "gate.json").write_text("{}")
    return Counts(1, stopped="worse" if refused else "")


@pytest.fixture
def file(tmp_path, monkeypatch, write):
    gate = Step("gate", GateSettings, refuse, "file")
    monkeypatch.setitem(STEPS, "gate", gate)
    monkeypatch.setattr(assets, "GATE", gate)
    rows = [{"_id": f"q{number}", "text": f"{name}怎么治疗"} for number, name in enumerate(DISEASES)]
    write(tmp_path / "new" / "2026-10" / "queries.jsonl", rows)
    steps = [
        {"step": "anonymize", "in": "new/{month}/queries.jsonl"},
        {"step": "gate", "in": "anonymize"},
        {"step": "dedup", "name": "after-gate", "in": "anonymize"},
    ]
    path = tmp_path / "loop.yaml"
    path.write_text(yaml.safe_dump({"out": "months/{month}", "steps": steps}))
    return path


def materialize(file, *, telemetry=False):
    definitions = assets.definitions(file, start="2026-10")
    (file.parent / "dagster").mkdir(exist_ok=True)
    settings = {"telemetry": {"enabled": telemetry}}
    with dg.DagsterInstance.local_temp(str(file.parent / "dagster"), overrides=settings) as instance:
        job = definitions.resolve_job_def("loop_job")
        result = job.execute_in_process(instance=instance, partition_key="2026-10", raise_on_error=False)
        made = [one.asset_key.to_user_string() for one in result.get_asset_materialization_events()]
        return result.success, made, [one.passed for one in result.get_asset_check_evaluations()]


def test_a_month_is_built_once_whoever_runs_it(file, tmp_path):
    assert materialize(file) == (True, ["anonymize", "gate", "after_gate"], [True])
    report = build(BuildSettings(file=file, values={"month": "2026-10"}))
    assert [one["kept"] for one in report["steps"]] == [True] * 3
    assert materialize(file)[0]


def test_a_refused_gate_blocks_what_follows(file, tmp_path):
    (tmp_path / "refuse").touch()
    success, made, passed = materialize(file)
    assert (success, made, passed) == (False, ["anonymize", "gate"], [False])
    assert not (tmp_path / "months" / "2026-10" / "after-gate").exists()
    (tmp_path / "refuse").unlink()
    assert materialize(file)[0]


def test_telemetry_must_be_off(file, tmp_path):
    assert materialize(file, telemetry=True)[:2] == (False, [])
    assert not (tmp_path / "months").exists()


def test_a_file_without_months_is_refused(file):
    file.write_text(yaml.safe_dump({"steps": [{"step": "anonymize", "in": "queries.jsonl"}]}))
    with pytest.raises(MarError, match="month"):
        assets.definitions(file, start="2026-10")
