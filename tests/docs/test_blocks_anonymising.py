"""Code blocks of the page on anonymising, executed on two questions."""

from __future__ import annotations

import shutil

import pytest

from tests.docs.blocks import EXECUTED


@pytest.mark.thorough
def test_the_page_on_anonymising_runs(workspace, tmp_path):
    rows = [
        {"_id": "1", "text": "患者王秀兰，电话13800138000", "科室": "内科"},
        {"_id": "2", "text": "头晕怎么办"},
    ]
    workspace.rows("questions.jsonl", rows)
    workspace.text("questions.csv", "_id,问题\n1,患者王秀兰，电话13800138000\n2,头晕怎么办\n")
    workspace.text("staff-and-patients.txt", "王秀兰\n")
    workspace.text("own-sentences.txt", "患者[[NAME:王秀兰]]，电话[[PHONE:13800138000]]\n")
    for name in EXECUTED["anonymising"]:
        shutil.rmtree(tmp_path / "build", ignore_errors=True)
        workspace.run(name)
