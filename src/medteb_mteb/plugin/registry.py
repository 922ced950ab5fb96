"""The only module that touches mteb's private state.

mteb keeps tasks, models and benchmarks in module variables that it fills by star imports, and offers no way
to add to them. Everything this package changes there is listed in ``SEAMS``, checked before the first change
and undone by `unregister`. If a new mteb has moved something, `check_mteb` says what, and what to do.
"""

from __future__ import annotations

import functools
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb import _autoload
from medteb_mteb.models.local import LOCAL, model_folder
from medteb_mteb.plugin import submission
from medteb_mteb.plugin.names import AliasedModels, full_name, full_names, with_argument
from medteb_mteb.plugin.seams import RESULT_CACHE, SEAMS, RegistryError, check_mteb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mteb.abstasks.abstask import AbsTask
    from mteb.models import ModelMeta

__all__ = [
    "FOLDERS_VARIABLE",
    "SEAMS",
    "RegistryError",
    "check_mteb",
    "register",
    "register_tasks",
    "unregister",
    "unregister_tasks",
]

FOLDERS_VARIABLE = "MEDTEB_TASKS"
ORGANISATION = "medteb"


_registering = False
_folders_done = False
_undo: list[Callable[[], None]] = []
_runtime_tasks: dict[str, type[AbsTask]] = {}


def register() -> None:
    """Add this package's tasks, benchmarks and models to mteb, then the folders in ``MEDTEB_TASKS``.

    Calling it again changes nothing. A folder that cannot be read is left out with a warning.

    Raises:
        RegistryError: If a name is taken, or a part of mteb was moved or removed; mteb is then unchanged.
    """
    global _registering
    import_module("mteb")  # its import hook may call register() first; then there is nothing left to do
    if _undo or _registering:
        _register_folders()
        return
    _registering = True  # an import below may end in a call of this function
    try:
        check_mteb()
        from medteb_mteb.models.metas import ALIASES, MODELS  # lazy: mteb
        from medteb_mteb.tasks import REPLACED, TASKS  # lazy: mteb
        from medteb_mteb.tasks.benchmarks import BENCHMARKS  # lazy: mteb

        for task in TASKS:
            _add_task(task, _undo)
        for theirs, ours in REPLACED.items():
            _replace_task(theirs, ours)
        _add_models(MODELS, ALIASES)
        _keep_off_the_hub(ALIASES)
        _keep_editions_apart()
        _resolve_names(ALIASES)
        _hold_back_private_results()
        _add_benchmarks(BENCHMARKS)
    except BaseException:
        unregister()
        raise
    finally:
        _registering = False
    _register_folders()


def unregister() -> None:
    """Removes everything from mteb again, including tasks added at run time; safe to call twice."""
    global _folders_done
    _folders_done = False
    unregister_tasks(list(_runtime_tasks))
    while _undo:
        _undo.pop()()


def register_tasks(tasks: Iterable[AbsTask | type[AbsTask]]) -> None:
    """Make further tasks known to mteb by name, such as those of `medteb_mteb.folders.task_from_folder`.

    Args:
        tasks: Task classes, or tasks whose class can be constructed without arguments. Registering a class
            twice changes nothing.

    Raises:
        RegistryError: If a name already belongs to another task; then no task of this call is added.
    """
    register()
    undo: list[Callable[[], None]] = []
    added: dict[str, type[AbsTask]] = {}
    try:
        for task in tasks:
            cls = task if isinstance(task, type) else type(task)
            if _add_task(cls, undo):
                added[cls.metadata.name] = cls
    except BaseException:
        while undo:
            undo.pop()()
        raise
    _runtime_tasks.update(added)


def unregister_tasks(names: Iterable[str]) -> None:
    """Removes tasks that `register_tasks` added.

    Raises:
        RegistryError: If a name was not added by `register_tasks`.
    """
    for name in names:
        if name not in _runtime_tasks:
            near = get_close_matches(name, _runtime_tasks, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise RegistryError(f"Task {name!r} was not registered at run time, so it stays.{hint}")
        _drop_task(_runtime_tasks.pop(name))


def _get_tasks() -> Any:
    # `mteb.get_tasks` as an attribute is the function of that name; the module is only in sys.modules.
    return import_module("mteb.get_tasks")


def _set(owner: Any, name: str, value: Any, undo: list[Callable[[], None]]) -> None:
    """Sets an attribute and remembers how to restore it."""
    absent = object()
    before = vars(owner).get(name, absent)
    setattr(owner, name, value)
    undo.append(lambda: delattr(owner, name) if before is absent else setattr(owner, name, before))


def _add_task(cls: type[AbsTask], undo: list[Callable[[], None]]) -> bool:
    module, name = _get_tasks(), cls.metadata.name
    known = module._TASKS_REGISTRY.get(name)
    if known is cls:
        return False
    if known is not None:
        raise RegistryError(
            f"A task named {name!r} is registered already ({known.__module__}.{known.__qualname__}). "
            "Give yours another name, or take the other one out with unregister_tasks()."
        )
    module._TASKS_REGISTRY[name] = cls
    module.TASK_LIST = (*module.TASK_LIST, cls)
    for parent, child in _similar(cls):
        module._SIMILAR_TASKS[parent].append(child)
    undo.append(lambda: _drop_task(cls))
    return True


def _drop_task(cls: type[AbsTask]) -> None:
    module = _get_tasks()
    module._TASKS_REGISTRY.pop(cls.metadata.name, None)
    module.TASK_LIST = tuple(task for task in module.TASK_LIST if task is not cls)
    for parent, child in _similar(cls):
        children = module._SIMILAR_TASKS[parent]
        children.remove(child)
        if not children:
            del module._SIMILAR_TASKS[parent]


def _similar(cls: type[AbsTask]) -> Iterator[tuple[str, str]]:
    for parent in cls.metadata.adapted_from or ():
        yield parent, cls.metadata.name
    if cls.metadata.superseded_by:
        yield cls.metadata.superseded_by, cls.metadata.name


def _replace_task(theirs: type[AbsTask], ours: type[AbsTask]) -> None:
    """Replaces one of mteb's own tasks by a subclass with the same name."""
    module, name = _get_tasks(), theirs.metadata.name
    if module._TASKS_REGISTRY.get(name) is not theirs:
        raise RegistryError(f"mteb's task {name!r} is no longer {theirs.__module__}.{theirs.__qualname__}.")

    def swap(old: type[AbsTask], new: type[AbsTask]) -> None:
        module._TASKS_REGISTRY[name] = new
        module.TASK_LIST = tuple(new if task is old else task for task in module.TASK_LIST)

    swap(theirs, ours)
    _undo.append(lambda: swap(ours, theirs))


def _add_models(metas: Iterable[ModelMeta], aliases: Mapping[str, str]) -> None:
    registry = import_module("mteb.models.model_implementations").MODEL_REGISTRY
    lookup = import_module("mteb.models.get_model_meta")
    for meta in metas:
        if registry.get(meta.name) is meta:  # mteb took it from the entry point
            continue
        if meta.name in registry:
            raise RegistryError(f"A model named {meta.name!r} is registered with mteb already.")
        registry[meta.name] = meta
        _undo.append(functools.partial(registry.pop, meta.name, None))
    for alias in aliases:
        if alias in registry or alias in lookup._MODEL_RENAMES:
            raise RegistryError(f"mteb knows a model {alias!r} already, so it cannot be an alias of ours.")
    _set(lookup, "MODEL_REGISTRY", AliasedModels(registry, aliases), _undo)


def _keep_off_the_hub(aliases: Mapping[str, str]) -> None:
    """Resolve this package's names and folders locally; on the Hub anyone could take such a name."""
    from mteb.models import ModelMeta  # lazy: mteb
    from mteb.models.get_model_meta import get_model_meta  # lazy: mteb

    ask_hub = ModelMeta._from_hub

    def _from_hub(cls: type[ModelMeta], model_name: str, revision: str | None = None) -> ModelMeta:
        ours = model_name.startswith((f"{ORGANISATION}/", f"{LOCAL}/")) or model_name in aliases
        if ours or model_folder(model_name) is not None:
            return get_model_meta(model_name, revision)  # a KeyError with the nearest name if there is none
        return ask_hub.__func__(cls, model_name, revision)  # type: ignore[attr-defined, no-any-return]

    _set(ModelMeta, "_from_hub", classmethod(_from_hub), _undo)


def _keep_editions_apart() -> None:
    """Have a task evaluated again if the saved result was measured on other data.

    mteb's default strategy reuses a complete result regardless of its dataset revision, so with editions it
    would report the score of one edition for another. Only tasks that set ``revision_matters`` are affected.
    """
    module = import_module("mteb.evaluate")
    requires_merge = module._requires_merge

    @functools.wraps(requires_merge)
    def _requires_merge(task: AbsTask, existing_results: Any) -> bool:
        if getattr(task, "revision_matters", False):
            # True leads to mteb's own comparison of the revisions, and from there to a full run.
            return bool(existing_results.dataset_revision != task.metadata.revision) or bool(
                requires_merge(task, existing_results)
            )
        return bool(requires_merge(task, existing_results))

    _set(module, "_requires_merge", _requires_merge, _undo)


def _resolve_names(aliases: Mapping[str, str]) -> None:
    """Resolve aliases and folders wherever mteb compares models by name, not only at look-up."""
    cache = import_module(RESULT_CACHE).ResultCache
    results = import_module("mteb.results").BenchmarkResults
    full = functools.partial(full_name, aliases=aliases)
    each = functools.partial(full_names, aliases=aliases)
    for owner, name, argument, change in (
        (cache, "_filter_paths_by_model_and_revision", "models", each),
        (cache, "_normalize_models", "models", each),
        (cache, "get_task_result_path", "model_name", full),
        (results, "select_models", "names", each),
    ):
        static = isinstance(vars(owner)[name], staticmethod)
        wrapped = with_argument(getattr(owner, name), argument, change)
        _set(owner, name, staticmethod(wrapped) if static else wrapped, _undo)
    # Functions are bound by name in every module that imports them.
    for module, name, argument in (
        ("mteb.models.get_model_meta", "get_model_metas", "model_names"),
        ("mteb.load_results", "load_results", "models"),
    ):
        original = vars(sys.modules[module])[name]
        wrapped = with_argument(original, argument, each)
        for holder in [loaded for key, loaded in sys.modules.items() if key.partition(".")[0] == "mteb"]:
            if vars(holder).get(name) is original:
                _set(holder, name, wrapped, _undo)


def _hold_back_private_results() -> None:
    """Have `submit-results` leave out tasks and models that are folders of this machine, and their names."""
    module = import_module(RESULT_CACHE)
    unsubmitted, copy = module.ResultCache._get_unsubmitted_results, module.CopyResultsAction.do

    @functools.wraps(unsubmitted)
    def _get_unsubmitted_results(*args: Any, **kwargs: Any) -> dict[ModelMeta, list[Path]]:
        public = set(_get_tasks()._TASKS_REGISTRY) - set(_runtime_tasks)
        return submission.public_results(unsubmitted(*args, **kwargs), public)

    @functools.wraps(copy)
    def do(self: Any) -> None:
        copy(self)
        submission.clean_settings(self.copied_files)

    _set(module.ResultCache, "_get_unsubmitted_results", _get_unsubmitted_results, _undo)
    _set(module.CopyResultsAction, "do", do, _undo)


def _add_benchmarks(benchmarks: Mapping[str, Any]) -> None:
    module = import_module("mteb.benchmarks.benchmarks")
    lookup = import_module("mteb.benchmarks.get_benchmark")
    registered = lookup._build_registry()

    def forget() -> None:
        lookup._build_registry.cache_clear()
        lookup._build_aliases_registry.cache_clear()

    benchmarks = {key: one for key, one in benchmarks.items() if registered.get(one.name) is not one}
    for variable, benchmark in benchmarks.items():
        if benchmark.name in registered or hasattr(module, variable):
            raise RegistryError(f"A benchmark named {benchmark.name!r} is registered with mteb already.")
    _undo.append(forget)
    for variable, benchmark in benchmarks.items():
        _set(module, variable, benchmark, _undo)
    forget()


def _register_folders() -> None:
    """Turns every folder in ``MEDTEB_TASKS`` into a task; one that cannot be read is named and left out."""
    global _folders_done
    folders = [part for part in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if part]
    if not folders or _folders_done or _registering:
        return
    _folders_done = True
    from medteb_mteb.tasks.of_folders import tasks_from_folders  # lazy: mteb

    problems = []
    for folder in folders:
        try:
            register_tasks(tasks_from_folders([Path(folder).expanduser().absolute()]))
        except Exception as error:
            problems.append(str(error) if folder in str(error) else f"{folder}: {error}")
    if problems:
        _autoload.warn(
            f"{FOLDERS_VARIABLE}: {len(problems)} of {len(folders)} folders left out. " + " | ".join(problems)
        )
