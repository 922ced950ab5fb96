"""Pieces of mteb's private state that registration changes, and the check that they are still there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

__all__ = ["SEAMS", "TESTED_MTEB", "RegistryError", "Seam", "check_mteb"]

#: Version of mteb that the tests run with.
TESTED_MTEB = "2.26"


class RegistryError(RuntimeError):
    """mteb cannot be extended as asked: it has changed, or a name is taken."""


class Seam(NamedTuple):
    """One piece of mteb's private state that this module relies on."""

    module: str
    name: str  # may be dotted: Class.attribute
    kind: type | str  # a type, or the attribute it must have
    used_for: str


RESULT_CACHE = "mteb.cache.result_cache"

SEAMS = (
    Seam("mteb.get_tasks", "TASK_LIST", tuple, "get_tasks and available-tasks"),
    Seam("mteb.get_tasks", "_TASKS_REGISTRY", dict, "get_task"),
    Seam("mteb.get_tasks", "_SIMILAR_TASKS", dict, "zero-shot marks"),
    Seam("mteb.models.model_implementations", "MODEL_REGISTRY", dict, "get_model"),
    Seam("mteb.models.get_model_meta", "MODEL_REGISTRY", Mapping, "names without an organisation"),
    Seam("mteb.models.get_model_meta", "_MODEL_RENAMES", dict, "names without an organisation"),
    Seam("mteb.models.model_meta", "ModelMeta._from_hub", "__call__", "keeping our names off the Hub"),
    Seam("mteb.benchmarks.get_benchmark", "_build_registry", "cache_clear", "get_benchmark"),
    Seam("mteb.benchmarks.get_benchmark", "_build_aliases_registry", "cache_clear", "get_benchmark"),
    Seam("mteb.benchmarks.benchmarks", "MTEB_RETRIEVAL_MEDICAL", "tasks", "get_benchmarks"),
    Seam("mteb.evaluate", "_requires_merge", "__call__", "never mixing results of two editions"),
    Seam(
        RESULT_CACHE, "ResultCache._filter_paths_by_model_and_revision", "__call__", "aliases in load_results"
    ),
    Seam(RESULT_CACHE, "ResultCache._normalize_models", "__call__", "aliases in submit-results"),
    Seam(RESULT_CACHE, "ResultCache.get_task_result_path", "__call__", "aliases in load_task_result"),
    Seam("mteb.results", "BenchmarkResults.select_models", "__call__", "aliases in select_models"),
    Seam("mteb.models.get_model_meta", "get_model_metas", "__call__", "aliases in get_model_metas"),
    Seam("mteb.load_results", "load_results", "__call__", "aliases in load_results"),
    Seam(RESULT_CACHE, "ResultCache._get_unsubmitted_results", "__call__", "keeping private results at home"),
    Seam(RESULT_CACHE, "CopyResultsAction.do", "__call__", "keeping private names out of submissions"),
)


def check_mteb() -> None:
    """Check that mteb still has every piece of private state that registration needs.

    Raises:
        RegistryError: A piece is missing or has another type; the first one is named.
    """
    for seam in SEAMS:
        try:
            owner: Any = import_module(seam.module)
            attribute = functools.reduce(getattr, seam.name.split("."), owner)
        except (ImportError, AttributeError):
            raise RegistryError(_moved(seam, "has no")) from None
        kind = seam.kind
        if not (hasattr(attribute, kind) if isinstance(kind, str) else isinstance(attribute, kind)):
            raise RegistryError(_moved(seam, f"has a {type(attribute).__name__} as"))


def _moved(seam: Seam, problem: str) -> str:
    try:
        installed = version("mteb")
    except PackageNotFoundError:
        installed = "of unknown version"
    return (
        f"mteb {installed} {problem} {seam.module}.{seam.name}, which medteb needs for {seam.used_for}. "
        f"medteb works with mteb {TESTED_MTEB}: pip install 'mteb~={TESTED_MTEB}.0', or look for a "
        "newer medteb."
    )
