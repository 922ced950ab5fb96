"""Workspaces in which the blocks of the docs run."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT
from tests.docs.workspace import Workspace
from tests.medteb_mteb.curation.diseases import DISEASES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

ASKED = ("不能吃什么", "怎么治疗", "会传染吗", "能喝酒吗")
ANSWERS = ("患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "一般不会传染给家人。", "是常见病。")


def load(path: Path) -> ModuleType:
    """Import a file by its path, as the tests of the builder do."""
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    return sys.modules[path.stem]


def texts_of(endings: tuple[str, ...], letter: str) -> list[dict[str, str]]:
    """A text for each of twelve diseases and each ending."""
    return [
        {"_id": f"{letter}{number}-{place}", "text": disease + ending}
        for number, disease in enumerate(DISEASES)
        for place, ending in enumerate(endings)
    ]


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Iterator[Workspace]:
    world = Workspace(tmp_path, monkeypatch)
    yield world
    world.stop()


@pytest.fixture
def rules(workspace, monkeypatch) -> Iterator[str]:
    """The URL of the rule-based judges, which stand for all LLMs of the workspace."""
    judges = load(ROOT / "examples" / "rule_judges.py")
    for service in ("DEEPSEEK", "OPENAI", "DASHSCOPE"):
        monkeypatch.setenv(f"{service}_API_KEY", "none")
    with judges.serving(judges.Endpoint()) as url:
        for line in ("api.deepseek.com", "dashscope.aliyuncs.com/compatible-mode", "api.openai.com"):
            workspace.swapped[f"https://{line}/v1"] = url
        workspace.swapped["http://127.0.0.1:8000"] = url.removesuffix("/v1")
        workspace.swapped["http://127.0.0.1:8900/v1"] = url
        yield url
