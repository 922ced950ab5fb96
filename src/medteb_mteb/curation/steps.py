"""The table of all steps, in the order in which help and messages list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.anonymize.step import ANONYMIZE
from medteb_mteb.curation.diversify import DIVERSIFY
from medteb_mteb.curation.edition.assemble import ASSEMBLE
from medteb_mteb.curation.judge import JUDGE
from medteb_mteb.curation.labels.consensus import CONSENSUS
from medteb_mteb.curation.labels.review import REVIEW
from medteb_mteb.curation.pooling import POOL
from medteb_mteb.curation.sts import STS
from medteb_mteb.curation.synthetic import SYNTHESIZE_QUERIES, SYNTHESIZE_TASKS
from medteb_mteb.curation.texts.near_duplicates import DEDUP
from medteb_mteb.curation.training import PAIRS, ROUND_TRIP, TRIPLES

if TYPE_CHECKING:
    from medteb_mteb.curation.step import Step

__all__ = ["STEPS"]

STEPS: dict[str, Step[Any]] = {
    step.name: step
    for step in (
        ANONYMIZE,
        DEDUP,
        DIVERSIFY,
        POOL,
        JUDGE,
        CONSENSUS,
        REVIEW,
        ASSEMBLE,
        STS,
        TRIPLES,
        PAIRS,
        SYNTHESIZE_QUERIES,
        SYNTHESIZE_TASKS,
        ROUND_TRIP,
    )
}
