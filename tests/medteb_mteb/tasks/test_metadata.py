"""Metadata of every task that this package adds to mteb."""

from __future__ import annotations

import pytest

from medteb_mteb.tasks import TASKS
from medteb_mteb.tasks.english import ENGLISH_TASKS


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.metadata.name)
def test_metadata_pass_the_checks_of_mtebs_own_tasks(task):
    metadata = type(task.metadata).model_validate(task.metadata.model_dump())
    metadata._validate_metadata()
    assert metadata.intext_citation()
    assert metadata.annotations_creators
    if task not in ENGLISH_TASKS:  # most sources of those do not date their texts
        assert metadata.is_filled()
    if metadata.date is not None:
        begin, end = metadata.date
        assert begin <= end
