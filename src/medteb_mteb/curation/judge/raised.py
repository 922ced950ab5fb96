"""Passages that raise their own grade: a judge's positives, shown again with a query they cannot answer.

An instruction that matches no pattern and affects no other passage leaves the control passages' grades
unchanged. But it raises its passage for any query, while an honest passage is not graded as an answer to an
unrelated one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.controls import ALLOWED_GRADES, MISGRADED_REASONS
from medteb_mteb.curation.judge.entries import OFF_TOPIC
from medteb_mteb.curation.judge.material import JudgingMaterial
from medteb_mteb.curation.judge.plan import RequestPlanner
from medteb_mteb.curation.labels.grades import POSITIVE_GRADES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.judge.journal import JudgementJournal

__all__ = ["check_of", "raised"]


def check_of(planner: RequestPlanner, journal: JudgementJournal) -> RequestPlanner | None:
    """Return the requests that show a judge its positives with unrelated queries; `None` without any.

    Every text is shown once, with one of the queries, together with others as in any prompt. The grades
    are in the journal like all others.

    Args:
        planner: Requests of the judge, all answered.
        journal: Journal with the judge's grades.
    """
    material, queries = planner.material, planner.judges.checks
    positives: dict[bytes, str] = {}
    for group in material.groups():
        keys = {planner.key(group.query, document): document for document in group.documents}
        for key, grade in journal.grades(list(keys)).items():
            if grade in POSITIVE_GRADES:
                positives.setdefault(material.digests["d", keys[key]], keys[key])
    if not positives:
        return None
    pools: dict[str, list[str]] = {}
    for digest, document in sorted(positives.items()):
        pools.setdefault(f"check-{digest[0] % len(queries)}", []).append(document)
    texts = {f"check-{number}": query for number, query in enumerate(queries)}
    checked = JudgingMaterial(
        {name: texts[name] for name in sorted(pools)},
        {document: material.documents[document] for document in positives.values()},
        dict(sorted(pools.items())),
    )
    return RequestPlanner(planner.judge, planner.judges, checked, journal, retry_failed=planner.retry_failed)


def raised(checks: Sequence[RequestPlanner], journal: JudgementJournal) -> frozenset[bytes]:
    """Return digests of the passages that some judge took for answers to a query that they cannot answer."""
    digests: set[bytes] = set()
    for planner in checks:
        for group in planner.material.groups():
            keys = {planner.key(group.query, document): document for document in group.documents}
            grades, failures = journal.grades(list(keys)), journal.failures(list(keys))
            caught = {key for key, grade in grades.items() if grade not in ALLOWED_GRADES[OFF_TOPIC]}
            caught |= {key for key, one in failures.items() if one.reason in MISGRADED_REASONS.values()}
            digests |= {planner.material.digests["d", keys[key]] for key in caught}
    return frozenset(digests)
