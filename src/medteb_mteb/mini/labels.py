"""Letters of the five-letter relevance scale, which follow from the construction.

S: same subject and intent, answered directly. A: same subject and intent, answered in part. B: same subject,
other intent. C: related subject. D: unrelated subject. S and A count as relevant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.mini.cells import Cell

if TYPE_CHECKING:
    from medteb_mteb.mini.cells import World
    from medteb_mteb.mini.documents import Document

RELEVANT_GRADES = frozenset("SA")


def grade(world: World, asked: Cell, document: Document) -> str:
    """Return the letter for a query about ``asked`` and a document.

    A document answers only questions about its own subject: a leaflet that names a disease among its
    indications is about the drug. Advice for one patient group answers the general question in part, and
    general advice answers the group's question in part; advice for another group does not answer it.
    """
    if document.entity != asked.entity:
        return "C" if world.related(asked.entity, document.entity) else "D"
    answers = document.answers
    if asked in answers:
        return answers[asked]
    if asked.intent != "special":
        if asked.group and Cell(asked.entity, asked.intent) in answers:
            return "A"
        if not asked.group and any(cell.intent == asked.intent for cell in answers):
            return "A"
    if asked.intent == "treatment" and any(cell.intent == "drugs" for cell in answers):
        return "A"  # naming the drugs is part of how a disease is treated
    return "B"
