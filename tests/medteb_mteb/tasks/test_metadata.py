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
    if task in ENGLISH_TASKS:  # each user's snapshot has dates and annotators of its own
        assert metadata.date is metadata.annotations_creators is None
    else:
        assert metadata.is_filled()
        begin, end = metadata.date
        assert begin <= end
