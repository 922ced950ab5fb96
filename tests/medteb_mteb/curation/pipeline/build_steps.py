"""The steps of a build from texts to an edition, for several tests."""

from __future__ import annotations

STEPS = [
    {"step": "anonymize", "name": "queries", "in": "queries.jsonl"},
    {"step": "anonymize", "name": "anonymous", "in": "documents.jsonl"},
    {"step": "dedup", "name": "documents", "in": "anonymous", "threshold": 0.9},
    {"step": "pool", "queries": "queries", "documents": "documents", "retrievers": ["bm25"], "size": 12},
    {"step": "judge", "queries": "queries", "documents": "documents", "pools": "pool"},
    {"step": "consensus", "name": "labels", "in": "judge"},
    {"step": "review", "labels": "labels", "queries": "queries", "documents": "documents", "size": 20},
    {
        "step": "assemble",
        "labels": "labels",
        "queries": "queries",
        "documents": "documents",
        "edition": "clinic",
        "licence": "mit",
        "test": 0.4,
        "small": True,
    },
]


def changed(steps, name, **values):
    return [{**one, **values} if one.get("name", one["step"]) == name else one for one in steps]
