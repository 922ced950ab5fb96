"""The tasks of MedTEB, one module each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medteb_mteb.abstasks.local_copy import DataUnavailableError
from medteb_mteb.tasks.cmirb import CMIRB_TASKS
from medteb_mteb.tasks.english import ENGLISH_TASKS
from medteb_mteb.tasks.nano import NANO_TASKS
from medteb_mteb.tasks.of_mteb import REPLACED_MTEB_TASKS, CMedQAv1Local, CMedQAv2Local
from medteb_mteb.tasks.relatives import RELATIVES, REPLACED_BIOSSES
from medteb_mteb.tasks.reranking import MedTEBReranking
from medteb_mteb.tasks.retrieval import MedTEBRetrieval
from medteb_mteb.tasks.sts import MedTEBSTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.abstasks.abstask import AbsTask

__all__ = [
    "REPLACED",
    "TASKS",
    "CMedQAv1Local",
    "CMedQAv2Local",
    "DataUnavailableError",
    "MedTEBReranking",
    "MedTEBRetrieval",
    "MedTEBSTS",
]

TASKS: tuple[type[AbsTask], ...] = (
    MedTEBRetrieval,
    MedTEBReranking,
    MedTEBSTS,
    *NANO_TASKS,
    *CMIRB_TASKS,
    *RELATIVES,
    *ENGLISH_TASKS,
)
REPLACED: Mapping[type[AbsTask], type[AbsTask]] = {**REPLACED_MTEB_TASKS, **REPLACED_BIOSSES}
