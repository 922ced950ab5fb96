"""English sets that are built from files on GitHub and not on the Hub yet, one file per set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .render import bibtex, formatted, task_class

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask

HEAD = '''"""{title}"""

from __future__ import annotations

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
'''


def content(task: type[AbsTask]) -> str:
    """Return the text of the file of a task; the data set is the one to upload to, its revision is open."""
    own = task.metadata
    title = " ".join((task.__doc__ or "").split())
    dataset = {"path": f"mteb/{own.name}", "revision": "main"}
    made = task_class(
        "AbsTaskRetrieval", own.model_dump() | {"dataset": dataset}, bibtex(own.bibtex_citation or "")
    )
    return formatted(HEAD.format(title=title) + made)
