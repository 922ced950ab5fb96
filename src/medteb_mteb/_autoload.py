"""Registers this package with mteb once mteb has been imported, and never before.

mteb has no plugin mechanism. ``medteb_autoload.pth`` imports this package at interpreter start, which costs
well under 2 ms: it only puts a finder in front of ``sys.meta_path``. The finder lets the other finders look
for mteb and runs registration right after mteb's own code. ``MEDTEB_AUTOLOAD=0`` switches the ``.pth`` off;
importing ``medteb_mteb`` explicitly still registers.

Registration imports most of this package. If a module of this package imported mteb, that module is itself
only partly imported when mteb is done; registration then waits until the outermost module of this package has
been imported. The finder takes care of that, so modules need not know this one.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would cost more than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_PACKAGE = __name__.partition(".")[0]
#: Modules of this package that are being imported, outermost first.
_importing: list[str] = []
_register: Callable[[], None] | None = None


class _Finder:
    """Finds mteb and this package through the other finders and adds one step after each import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "mteb" and not name.startswith(f"{_PACKAGE}."):
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    _run_after(spec)
                    return spec
        return None


_FINDER = _Finder()


def arm(register: Callable[[], None]) -> None:
    """Register now if mteb is imported already, else as soon as it is.

    Args:
        register: Adds the package to mteb; called when the imports of mteb and of all modules of this package
            that have begun are complete.
    """
    global _register
    _register = register
    if sys.modules.get("mteb") is not None:
        _finish()
    elif _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _finish() -> None:
    """Register, unless mteb is not imported yet or a module of this package is only partly imported.

    After a failure mteb still works; one warning says what went wrong.
    """
    if sys.modules.get("mteb") is None or (_in_progress("mteb") and _FINDER in sys.meta_path):
        return
    if _importing or _register is None:
        return
    try:
        _register()
    except Exception as error:
        warn(
            "medteb could not register its tasks and models, mteb works without them. "
            f"{type(error).__name__}: {error}"
        )


def warn(message: str) -> None:
    """Warn, and fall back on stderr if warnings are errors: importing mteb must not fail here."""
    import warnings  # lazy: warnings

    try:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        sys.stderr.write(f"warning: {message}\n")


def _run_after(spec: ModuleSpec) -> None:
    loader = spec.loader
    if loader is None or not hasattr(loader, "exec_module"):
        return
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        # An attribute of this one loader object, not a wrapper around it: afterwards mteb.__loader__ is
        # the same as without this package.
        del loader.exec_module
        if spec.name == "mteb":
            execute(module)
            if _FINDER in sys.meta_path:
                sys.meta_path.remove(_FINDER)
            _finish()
            return
        _importing.append(spec.name)
        try:
            execute(module)
        finally:  # mteb may be imported even if the module that imported it failed
            _importing.remove(spec.name)
            _finish()

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _in_progress(name: str) -> bool:
    """Return True if a module is still being imported."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
