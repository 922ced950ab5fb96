"""mteb's own tasks in the benchmarks of this package, which may also read a local copy of their data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mteb.tasks import (
    SCIDOCS,
    TRECCOVID,
    CmedqaRetrieval,
    CMedQAv1,
    CMedQAv2,
    CovidRetrieval,
    MedicalRetrieval,
    NFCorpus,
    SciFact,
)

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


class NFCorpusLocal(CopiedRetrieval, NFCorpus):
    """mteb's NFCorpus with the local copy as an option."""


class SciFactLocal(CopiedRetrieval, SciFact):
    """mteb's SciFact with the local copy as an option."""


class SCIDOCSLocal(CopiedRetrieval, SCIDOCS):
    """mteb's SCIDOCS with the local copy as an option."""


class TRECCOVIDLocal(CopiedRetrieval, TRECCOVID):
    """mteb's TRECCOVID with the local copy as an option."""


REPLACED_MTEB_TASKS: Mapping[type[AbsTask], type[AbsTask]] = {
    CMedQAv1: CMedQAv1Local,
    CMedQAv2: CMedQAv2Local,
    CmedqaRetrieval: CmedqaRetrievalLocal,
    MedicalRetrieval: MedicalRetrievalLocal,
    CovidRetrieval: CovidRetrievalLocal,
    NFCorpus: NFCorpusLocal,
    SciFact: SciFactLocal,
    SCIDOCS: SCIDOCSLocal,
    TRECCOVID: TRECCOVIDLocal,
}
