"""Each kind of stage is trained by its own module, with what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mar_st.recipes.schema import AlignStage, RetroMAEStage
from mar_st.stages.dispatch import train_stage
from tests.mar_st.stages.helpers import settings, source, stage

FIELDS = {"batch_size": 8, "learning_rate": 1e-3}
STAGES = {
    "retromae": RetroMAEStage(stage="retromae", name="retromae", **FIELDS),
    "contrastive": stage("contrastive"),
    "align": AlignStage(stage="align", name="align", **FIELDS),
    "distill": stage("distill"),
    "joint": stage("joint"),
}


@pytest.fixture
def calls(monkeypatch):
    """Names of the kinds whose training was called, with its arguments."""
    called = []
    for kind in STAGES:

        def train(*arguments, kind=kind, **named):
            called.append((kind, arguments, named))

        monkeypatch.setattr(f"mar_st.stages.{kind}.train_{kind}", train)
    return called


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        ("retromae", {"head": "head"}),
        ("contrastive", {}),
        ("align", {}),
        ("joint", {"teacher": "teacher"}),
    ],
)
def test_a_stage_is_trained_by_the_module_of_its_kind(tmp_path, calls, kind, extra):
    data, of_run, prompts = [source()], settings(tmp_path), {"query": "检索："}
    train_stage("model", data, STAGES[kind], of_run, prompts, teacher="teacher", head="head")
    assert calls == [(kind, ("model", data, STAGES[kind], of_run, prompts), extra)]


def test_a_distillation_gets_its_teacher_after_the_student(tmp_path, calls):
    data, of_run = [source()], settings(tmp_path)
    train_stage("model", data, STAGES["distill"], of_run, {}, teacher="teacher", head=None)
    assert calls == [("distill", ("model", "teacher", data, STAGES["distill"], of_run, {}), {})]


@pytest.mark.thorough
def test_nothing_that_trains_is_imported_before_a_stage_starts():
    code = (
        "import sys, mar_st.stages.dispatch;"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
