from __future__ import annotations

import re

import pytest

from medteb_mteb.tasks.citations import cite
from medteb_mteb.tasks.nano import NANO_TASKS
from medteb_mteb.tasks.relatives import RELATIVES

KEY = re.compile(r"^@\w+\{([^,]+),", re.MULTILINE)


def test_entries_are_sorted_by_key_and_not_repeated():
    first, second = "\n@misc{zeta,\n year = {2020},\n}\n", "@article{Alpha,\n}\n\n@misc{beta,\n}"
    assert KEY.findall(cite(first, None, second, first)) == ["Alpha", "beta", "zeta"]


@pytest.mark.parametrize("task", [*NANO_TASKS, *RELATIVES], ids=lambda task: task.metadata.name)
def test_the_citations_of_a_task_are_in_the_order_of_mteb(task):
    keys = KEY.findall(task.metadata.bibtex_citation or "")
    assert keys == sorted(set(keys), key=str.lower)
