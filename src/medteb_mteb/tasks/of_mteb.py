"""mteb's own Chinese medical tasks, which may also read a local copy of their data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mteb.tasks import CmedqaRetrieval, CMedQAv1, CMedQAv2, CovidRetrieval, MedicalRetrieval

from medteb_mteb.tasks._copied import CopiedRetrieval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.abstasks.abstask import AbsTask


class CMedQAv1Local(CopiedRetrieval, CMedQAv1):
    """mteb's CMedQAv1-reranking with the local copy as an option."""


class CMedQAv2Local(CopiedRetrieval, CMedQAv2):
    """mteb's CMedQAv2-reranking with the local copy as an option."""


class CmedqaRetrievalLocal(CopiedRetrieval, CmedqaRetrieval):
    """mteb's CmedqaRetrieval with the local copy as an option."""


class MedicalRetrievalLocal(CopiedRetrieval, MedicalRetrieval):
    """mteb's MedicalRetrieval with the local copy as an option."""


class CovidRetrievalLocal(CopiedRetrieval, CovidRetrieval):
    """mteb's CovidRetrieval with the local copy as an option."""


REPLACED: Mapping[type[AbsTask], type[AbsTask]] = {
    CMedQAv1: CMedQAv1Local,
    CMedQAv2: CMedQAv2Local,
    CmedqaRetrieval: CmedqaRetrievalLocal,
    MedicalRetrieval: MedicalRetrievalLocal,
    CovidRetrieval: CovidRetrievalLocal,
}
