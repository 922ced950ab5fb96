"""Names of models as users type them: aliases and folders, beside the names in mteb's registry."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from medteb_mteb.models.local import folder_meta, folder_name, model_folder

if TYPE_CHECKING:
    from mteb.models import ModelMeta

__all__ = ["AliasedModels", "full_name", "full_names", "with_argument"]


class AliasedModels(MutableMapping[str, "ModelMeta"]):
    """mteb's models as `get_model_meta` sees them: aliases and folders resolve, but are never listed.

    mteb's own table of renamed models would do for aliases, were it not for its "has been renamed" warning.
    """

    def __init__(self, models: dict[str, ModelMeta], aliases: Mapping[str, str]) -> None:
        self.models = models
        self.aliases = aliases

    def __getitem__(self, name: str) -> ModelMeta:
        full = name if name in self.models else self.aliases.get(name, name)
        folder = None if full in self.models else model_folder(full)
        return self.models[full] if folder is None else folder_meta(folder)

    def __contains__(self, name: object) -> bool:
        # Does not build a folder's metadata, which would read its weights.
        return (
            name in self.models or name in self.aliases or bool(isinstance(name, str) and model_folder(name))
        )

    def __setitem__(self, name: str, meta: ModelMeta) -> None:
        self.models[name] = meta

    def __delitem__(self, name: str) -> None:
        del self.models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)


def full_name(name: Any, aliases: Mapping[str, str]) -> Any:
    """Return the name that results of an alias or a folder are filed under; other names unchanged."""
    if not isinstance(name, str) or name in aliases:
        return aliases.get(name, name) if isinstance(name, str) else name
    folder = model_folder(name)
    return name if folder is None else folder_name(folder)


def full_names(models: str | Iterable[Any] | None, aliases: Mapping[str, str]) -> Any:
    """Return the `full_name` of a model, or a list of those of several models; None stays None."""
    if models is None or isinstance(models, str):
        return full_name(models, aliases)
    return [full_name(model, aliases) for model in models]


def with_argument(
    function: Callable[..., Any], name: str, change: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a function that changes one of its arguments, however that is passed, before calling another."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if name in bound.arguments:
            bound.arguments[name] = change(bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return wrapper
