"""Letters of the five-letter relevance scale, which follow from the construction.

S: same subject and intent, answered directly. A: same subject and intent, answered in part. B: same subject,
other intent. C: related subject. D: unrelated subject. S and A count as relevant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.mini.cells import Cell

if TYPE_CHECKING:
    from tools.mini.cells import World
    from tools.mini.documents import Document

RELEVANT_GRADES = frozenset("SA")


def grade(world: World, query_cell: Cell, document: Document) -> str:
    """Return the letter for a query about ``query_cell`` and a document.

    A document answers only questions about its own subject: a leaflet that names a disease among its
    indications is about the drug. Advice for one patient group answers the general question in part, and
    general advice answers the group's question in part; advice for another group does not answer it.
    """
    if document.entity != query_cell.entity:
        return "C" if world.related(query_cell.entity, document.entity) else "D"
    answers = document.answers
    if query_cell in answers:
        return answers[query_cell]
    if query_cell.intent != "special":
        if query_cell.group and Cell(query_cell.entity, query_cell.intent) in answers:
            return "A"
        if not query_cell.group and any(cell.intent == query_cell.intent for cell in answers):
            return "A"
    if query_cell.intent == "treatment" and any(cell.intent == "drugs" for cell in answers):
        return "A"  # naming the drugs is part of how a disease is treated
    return "B"
