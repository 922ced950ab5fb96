"""Journals that are filled without a server, and planners that nothing is sent to."""

from __future__ import annotations

import hashlib
import os

from medteb_mteb.curation.judge import Judges
from medteb_mteb.curation.judge.entries import JudgeAccount, Request, places_of
from medteb_mteb.curation.judge.journal import JudgementJournal
from medteb_mteb.curation.judge.material import JudgingMaterial
from medteb_mteb.curation.judge.plan import RequestPlanner
from medteb_mteb.curation.llm.database import Failure, settings_digest

SETTINGS = settings_digest({"model": "m"})


def key(number):
    return hashlib.sha256(b"%d" % number).digest()[:16]


def settle(journal, numbers, grade="A", failures=None, follow=()):
    request = Request(tuple(key(number) for number in numbers))
    journal.decide(SETTINGS, [request])
    grades = {key(number): grade for number in numbers}
    journal.settle(
        SETTINGS, request, judge="one", grades=grades, failures=failures or {}, follow=list(follow),
        paid=JudgeAccount(1, 100, 10, 0.5, 0, 1, 0),
    )  # fmt: skip


def settle_until_killed(path, after):
    """In a process of its own: settle judgements one by one, and end without closing the journal."""
    journal = JudgementJournal(path)
    for number in range(after + 1):
        settle(journal, [number])
    os._exit(9)


def filled(path, count=3000):
    with JudgementJournal(path) as journal:
        journal.describe(SETTINGS, {"model": "m"})
        for start in range(0, count, 10):
            settle(journal, range(start, start + 10), grade="SABCD"[start // 10 % 5])


def planned(journal, material, name="one", *, retry_failed=False, **settings):
    """The planner of one judge."""
    shared = {field: settings.pop(field) for field in Judges.model_fields if field in settings}
    entry = {"name": name, "model": name, "base_url": "http://localhost:9/v1", "passages": 4} | settings
    judges = Judges.model_validate({"judges": [entry], **shared})
    return RequestPlanner(judges.judges[0], judges, material, journal, retry_failed=retry_failed)


def material_of(queries=2, documents=6, pools=None, gold=None):
    """Queries and documents, given as texts by id or as numbers; pools of all documents unless given."""
    if isinstance(queries, int):
        queries = {f"q{i}": f"高血压患者第{i}问" for i in range(queries)}
    if isinstance(documents, int):
        documents = {f"d{i}": f"降压药应当按时服用，第{i}条。" for i in range(documents)}
    return JudgingMaterial(queries, documents, pools or dict.fromkeys(queries, tuple(documents)), gold)


def answer(planner, outcome, tasks=None, **options):
    """Settle requests: `outcome(query, document)` is a grade, or the reason why there is none."""
    for task in list(planner.tasks()) if tasks is None else tasks:
        planner.journal.decide(planner.settings, [task.request])
        told = {k: outcome(task.query, d) for k, d in zip(task.request.keys, task.documents, strict=True)}
        planner.journal.settle(
            planner.settings, task.request, judge=planner.judge.name, follow=(), paid=JudgeAccount(1),
            grades={k: one for k, one in told.items() if len(one) == 1},
            failures={k: Failure(one, task.request.attempt) for k, one in told.items() if len(one) > 1},
            places=places_of(task.request, task.numbers), **options,
        )  # fmt: skip
