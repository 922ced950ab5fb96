"""The only module that touches mteb's private state: its registries, the names of models, what it submits.

mteb keeps tasks, models and benchmarks in module variables that it fills by star imports, and offers no way
to add to them. Everything this package changes there is listed in `SEAMS` and checked before the first
change. Versions of mteb with the entry point group `mteb.plugins` (the patch in
`contrib/mteb` adds it) call `plugin`, and need only the rest.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections import ChainMap
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import read_record
from medteb_mteb import _autoload

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from mteb.abstasks.abstask import AbsTask
    from mteb.models import ModelMeta

logger = logging.getLogger(__name__)

FOLDERS_VARIABLE = "MEDTEB_TASKS"
ORGANISATION = "medteb"
#: Version of mteb that the tests run with.
TESTED_MTEB = "2.26"
_CACHE = "mteb.cache.result_cache"
#: Private state of mteb that this module relies on: module, name, and what it is needed for.
SEAMS = (
    ("mteb.get_tasks", "TASK_LIST", "get_tasks and available-tasks"),
    ("mteb.get_tasks", "_TASKS_REGISTRY", "get_task"),
    ("mteb.get_tasks", "_SIMILAR_TASKS", "zero-shot marks"),
    ("mteb.models.model_implementations", "MODEL_REGISTRY", "get_model"),
    ("mteb.models.get_model_meta", "MODEL_REGISTRY", "names without an organisation"),
    ("mteb.models.get_model_meta", "_MODEL_RENAMES", "names without an organisation"),
    ("mteb.models.model_meta", "ModelMeta._from_hub", "keeping our names off the Hub"),
    ("mteb.benchmarks.get_benchmark", "_build_registry.cache_clear", "get_benchmark"),
    ("mteb.benchmarks.get_benchmark", "_build_aliases_registry.cache_clear", "get_benchmark"),
    ("mteb.benchmarks.benchmarks", "MTEB_RETRIEVAL_MEDICAL", "get_benchmarks"),
    ("mteb.evaluate", "_requires_merge", "never mixing results of two editions"),
    (_CACHE, "ResultCache._get_unsubmitted_results", "keeping private results at home"),
    (_CACHE, "ResultCache.save_to_cache", "saying which score was saved where"),
    (_CACHE, "CopyResultsAction.do", "keeping private names out of submissions"),
)

_registering = _registered = _folders_done = False


def plugin() -> Any:
    """Return mteb's `Plugin` with the tasks, models and benchmarks of this package."""
    from medteb_mteb.models.metas import MODELS  # lazy: mteb
    from medteb_mteb.tasks import (
        BENCHMARKS,  # lazy: mteb
        TASKS,  # lazy: mteb
    )

    make = import_module("mteb.plugins").Plugin
    return make(tasks=TASKS, models=MODELS, benchmarks=tuple(BENCHMARKS.values()))


def register() -> None:
    """Add this package's tasks, benchmarks and models to mteb, then the folders in `MEDTEB_TASKS`.

    Calling it again changes nothing. A folder that cannot be read is left out with a warning.

    Raises:
        MarError: A name is taken, or a part of mteb was moved or removed; mteb is then unchanged.
    """
    global _registering, _registered
    import_module("mteb")  # its import hook may call register() first; then there is nothing left to do
    if not _registered and not _registering:
        _registering = True  # an import below may end in a call of this function
        try:
            _check_mteb()
            _register_all()
            _registered = True
        finally:
            _registering = False
    _register_folders()


def register_tasks(tasks: Iterable[AbsTask | type[AbsTask]]) -> None:
    """Make further tasks known to mteb by name, such as those of `medteb_mteb.task_from_folder`.

    Args:
        tasks: Task classes, or tasks whose class can be constructed without arguments. Registering a class
            twice changes nothing.

    Raises:
        MarError: A name already belongs to another task; then no task of this call is added.
    """
    register()
    new = _new_tasks([task if isinstance(task, type) else type(task) for task in tasks])
    for cls in new:
        _add_task(cls)


def _check_mteb() -> None:
    for module, name, used_for in SEAMS:
        try:
            functools.reduce(getattr, name.split("."), import_module(module))
        except (ImportError, AttributeError):
            raise MarError(
                f"mteb {version('mteb')} has no {module}.{name}, which medteb needs for {used_for}. medteb "
                f"works with mteb {TESTED_MTEB}: pip install 'mteb~={TESTED_MTEB}.0', or look for a newer "
                "medteb."
            ) from None


def _register_all() -> None:
    from medteb_mteb.models.metas import ALIASES, MODELS  # lazy: mteb
    from medteb_mteb.tasks import (  # lazy: mteb
        BENCHMARKS,  # lazy: mteb
        REPLACED,
        TASKS,
    )

    models = import_module("mteb.models.model_implementations").MODEL_REGISTRY
    lookup: Any = import_module("mteb.models.get_model_meta")
    # mteb may have taken some from the entry point.
    tasks, metas = _new_tasks(TASKS), [meta for meta in MODELS if models.get(meta.name) is not meta]
    _refuse_taken("model", [str(meta.name) for meta in metas], models)
    _refuse_taken("model", ALIASES, {*models, *lookup._MODEL_RENAMES})
    registered = import_module("mteb.benchmarks.get_benchmark")._build_registry()
    benchmarks = {key: one for key, one in BENCHMARKS.items() if registered.get(one.name) is not one}
    _refuse_taken("benchmark", [one.name for one in benchmarks.values()], registered)
    for task in tasks:
        _add_task(task)
    for theirs, ours in REPLACED.items():
        _replace_task(theirs, ours)
    models.update({meta.name: meta for meta in metas})
    lookup.MODEL_REGISTRY = _Models(models)
    _keep_off_the_hub(ALIASES)
    _keep_editions_apart()
    _hold_back_private_results()
    _say_what_is_saved()
    _add_benchmarks(benchmarks)


def _refuse_taken(kind: str, names: Iterable[str], taken: Container[str]) -> None:
    for name in names:
        if name in taken:
            raise MarError(f"A {kind} named {name!r} is registered with mteb already.")


def _register_folders() -> None:
    """Turn every folder in `MEDTEB_TASKS` into a task; one that cannot be read is named and left out."""
    global _folders_done
    folders = [part for part in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if part]
    if not folders or _folders_done or _registering:
        return
    _folders_done = True
    from medteb_mteb.folders.live import data_folders  # lazy: yaml
    from medteb_mteb.tasks import tasks_from_folders  # lazy: mteb

    problems = []
    for folder in folders:
        try:
            register_tasks(tasks_from_folders(data_folders([Path(folder).expanduser().absolute()])))
        except Exception as error:
            problems.append(str(error) if folder in str(error) else f"{folder}: {error}")
    if problems:
        text = " | ".join(problems)
        _autoload.warn(f"{FOLDERS_VARIABLE}: {len(problems)} of {len(folders)} folders left out. {text}")


def _get_tasks() -> Any:
    # `mteb.get_tasks` as an attribute is the function of that name; the module is only in sys.modules.
    return import_module("mteb.get_tasks")


def _new_tasks(tasks: Iterable[type[AbsTask]]) -> list[type[AbsTask]]:
    """Return the tasks that mteb does not know yet, once each.

    Raises:
        MarError: A name belongs to another task.
    """
    known = dict(_get_tasks()._TASKS_REGISTRY)
    new = []
    for cls in tasks:
        other = known.setdefault(cls.metadata.name, cls)
        if other is not cls:
            raise MarError(
                f"A task named {cls.metadata.name!r} is registered already ({other.__module__}."
                f"{other.__qualname__}). Give yours another name."
            )
        if cls not in _get_tasks().TASK_LIST and cls not in new:
            new.append(cls)
    return new


def _add_task(cls: type[AbsTask]) -> None:
    module, name = _get_tasks(), cls.metadata.name
    module._TASKS_REGISTRY[name] = cls
    module.TASK_LIST = (*module.TASK_LIST, cls)
    for parent in (*(cls.metadata.adapted_from or ()), cls.metadata.superseded_by):
        if parent:
            module._SIMILAR_TASKS[parent].append(name)


def _replace_task(theirs: type[AbsTask], ours: type[AbsTask]) -> None:
    """Replace one of mteb's own tasks by a subclass with the same name."""
    module = _get_tasks()
    module._TASKS_REGISTRY[theirs.metadata.name] = ours
    module.TASK_LIST = tuple(ours if task is theirs else task for task in module.TASK_LIST)


class _Models(ChainMap[str, "ModelMeta"]):
    """mteb's models as `get_model_meta` sees them: aliases and folders resolve, but are never listed.

    mteb's own table of renamed models would do for aliases, were it not for its "has been renamed" warning.
    """

    def __missing__(self, name: str) -> ModelMeta:
        from medteb_mteb.models.local import folder_meta, model_folder  # lazy: mteb
        from medteb_mteb.models.metas import ALIASES  # lazy: mteb

        if name in ALIASES:
            return self[ALIASES[name]]
        if (folder := model_folder(name)) is None:
            raise KeyError(name)
        return folder_meta(folder)

    def __contains__(self, name: object) -> bool:
        from medteb_mteb.models.local import model_folder  # lazy: mteb
        from medteb_mteb.models.metas import ALIASES  # lazy: mteb

        # Does not build a folder's metadata, which would read its weights.
        known = super().__contains__(name) or name in ALIASES
        return known or (isinstance(name, str) and model_folder(name) is not None)


def _keep_off_the_hub(aliases: Mapping[str, str]) -> None:
    """Resolve this package's names and folders locally; on the Hub anyone could take such a name."""
    from mteb.models import ModelMeta  # lazy: mteb
    from mteb.models.get_model_meta import get_model_meta  # lazy: mteb

    from medteb_mteb.models.local import LOCAL, model_folder  # lazy: mteb

    ask_hub = ModelMeta._from_hub

    def _from_hub(cls: type[ModelMeta], model_name: str, revision: str | None = None) -> ModelMeta:
        ours = model_name.startswith((f"{ORGANISATION}/", f"{LOCAL}/")) or model_name in aliases
        if ours or model_folder(model_name) is not None:
            return get_model_meta(model_name, revision)  # a KeyError with the nearest name if there is none
        return ask_hub.__func__(cls, model_name, revision)  # type: ignore[attr-defined, no-any-return]

    ModelMeta._from_hub = classmethod(_from_hub)  # type: ignore[assignment]


def _keep_editions_apart() -> None:
    """Have a task evaluated again if the saved result was measured on other data.

    mteb's default strategy reuses a complete result regardless of its dataset revision, so with editions it
    would report the score of one edition for another. Only tasks that set `revision_matters` are affected.
    """
    module: Any = import_module("mteb.evaluate")
    requires_merge = module._requires_merge

    def _requires_merge(task: AbsTask, existing_results: Any) -> bool:
        # True leads to mteb's own comparison of the revisions, and from there to a full run.
        other = existing_results.dataset_revision != task.metadata.revision
        return (other and getattr(task, "revision_matters", False)) or requires_merge(task, existing_results)

    module._requires_merge = _requires_merge


def _add_benchmarks(benchmarks: Mapping[str, Any]) -> None:
    module = import_module("mteb.benchmarks.benchmarks")
    lookup = import_module("mteb.benchmarks.get_benchmark")
    for variable, benchmark in benchmarks.items():
        setattr(module, variable, benchmark)
    lookup._build_registry.cache_clear()
    lookup._build_aliases_registry.cache_clear()


def _hold_back_private_results() -> None:
    """Have `submit-results` leave out what `medteb_mteb.models.local` calls private, and its names."""
    module = import_module(_CACHE)
    unsubmitted, copy = module.ResultCache._get_unsubmitted_results, module.CopyResultsAction.do

    def _get_unsubmitted_results(*args: Any, **kwargs: Any) -> dict[ModelMeta, list[Path]]:
        return _public_results(unsubmitted(*args, **kwargs))

    def do(self: Any) -> None:
        copy(self)
        # mteb's file of run settings, a line per task, is submitted beside the results.
        for settings in {path for path in self.copied_files if path.name == "run_settings.jsonl"}:
            tasks = {path.stem for path in settings.parent.glob("*.json")}
            lines = settings.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if line.strip() and json.loads(line).get("task") in tasks]
            settings.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    module.ResultCache._get_unsubmitted_results = _get_unsubmitted_results
    module.CopyResultsAction.do = do


def _say_what_is_saved() -> None:
    """Log the score of a task of this package and the file that holds it; `mteb run` prints mteb's log."""
    module = import_module(_CACHE)
    save, log = module.ResultCache.save_to_cache, logging.getLogger("mteb.medteb")
    last: tuple[Path, Any] = (Path(), None)

    def save_to_cache(self: Any, result: Any, model: Any, revision: str | None = None, **kwargs: Any) -> None:
        nonlocal last
        save(self, result, model, revision, **kwargs)
        task = _get_tasks()._TASKS_REGISTRY.get(result.task_name)
        ours = task is not None and task.__module__.startswith(f"{__package__}.")
        path, name = self.get_task_result_path(result.task_name, model, revision), result.task_name
        if ours and last != (path, result.scores):  # mteb saves every result twice
            last, metric = (path, result.scores), task.metadata.main_score
            log.info("%s: %s = %.4f, saved in %s", name, metric, result.get_score(), path)

    module.ResultCache.save_to_cache = save_to_cache


def _public_results(files: Mapping[ModelMeta, Sequence[Path]]) -> dict[ModelMeta, list[Path]]:
    """Return the result files that may be submitted, by model; warn about those held back, with reasons."""
    from medteb_mteb.models.local import reason_to_hold  # lazy: mteb

    held: dict[str, set[str]] = {}
    free: dict[ModelMeta, list[Path]] = {}
    for meta, paths in files.items():
        for path in paths:
            content = read_record(path)
            if content is None:
                reason: str | None = "the file cannot be read"
            else:
                reason = reason_to_hold(str(meta.name), path.stem, str(content.get("dataset_revision")))
            if reason is None:
                free.setdefault(meta, []).append(path)
            else:
                held.setdefault(reason, set()).add(f"{meta.name} on {path.stem}")
    for reason, names in held.items():
        shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        logger.warning("medteb keeps %s out of the submission, which is public: %s.", shown, reason)
    return free
