"""Recipes: one YAML file describes one model, as an ordered list of training stages."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mar_st.errors import MarError
from mar_st.files.yaml_text import YamlError, parse_yaml
from mar_st.recipes.schema import STAGE_RANKS, Recipe

RECIPES = Path(__file__).parent


class RecipeError(MarError):
    """A recipe that cannot be run; the message names the file and the key."""


def recipe_names() -> list[str]:
    """Return the names of the package's recipes; those in a sub-folder, as `ablations/NAME`, come last."""
    paths = (path.relative_to(RECIPES).with_suffix("") for path in RECIPES.rglob("*.yaml"))
    recipes = (path for path in paths if path.parts[0] != "studies")
    return [path.as_posix() for path in sorted(recipes, key=lambda path: (len(path.parts), path.as_posix()))]


def load_recipe(name: str | Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe by shipped name or file.

    Args:
        name: A name of `recipe_names()` or a path to a YAML file. With `extends: NAME` the file builds on
            another recipe: mappings are merged, lists and values replaced, `null` removes a side. A mapping
            in place of a list of named entries (data, stages) changes only the entries that it names:
            `stages: {align: {epochs: 2}, joint: null}`.
        overrides: `a.b=value` settings applied on top; list entries by index or name
            (`stages.0.epochs=2`, `stages.align.epochs=2`), values are YAML.

    Raises:
        RecipeError: The recipe does not exist, its YAML is broken, a key is unknown or a combination is
            impossible.
    """
    path = _find(name)
    content = _read(path, ())
    for override in overrides or []:
        _apply(content, override)
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'recipe'}: {item['msg']}"
            for item in error.errors()
        )
        raise RecipeError(f"{path}: {problems}") from error


def changed(recipe: Recipe, overrides: list[str]) -> Recipe:
    """Return a recipe with `--set` settings applied on top.

    Raises:
        RecipeError: A key does not exist.
        ValidationError: A combination is impossible.
    """
    content = recipe.model_dump(mode="json")
    for override in overrides:
        _apply(content, override)
    return Recipe.model_validate(content)


def _find(name: str | Path, beside: Path | None = None) -> Path:
    """Return the file of a recipe: a shipped name, or a path (relative to the file that extends it)."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):  # a shipped name may hold a dot
        path = RECIPES / f"{name}.yaml"
    elif beside is not None:
        path = beside / path
    exists = False
    with suppress(OSError):  # a name that is too long for a file
        exists = path.is_file()
    if not exists:
        similar = get_close_matches(str(name), recipe_names())
        hint = f" Did you mean {similar[0]!r}?" if similar else ""
        raise RecipeError(
            f"No recipe {str(name)[:200]!r}.{hint} Shipped: {', '.join(recipe_names())}; "
            "or give a .yaml file."
        )
    return path


def _read(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Return a recipe file merged over the recipe it `extends`: mappings merge, all else replaces."""
    if path.resolve() in chain:
        raise RecipeError(f"{path} extends itself, by way of {', '.join(p.name for p in chain)}.")
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (YamlError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path} should hold a mapping with 'name', 'stages' and so on.")
    base = content.pop("extends", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise RecipeError(f"{path}: extends should be the name or the file of one recipe; got {base!r}.")
    try:
        return _merge(_read(_find(base, path.parent), (*chain, path.resolve())), content)
    except KeyError as error:
        raise RecipeError(f"{path}: {error.args[0]}") from error


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, list):
            merged[key] = _merge_named(key, old, value)
        elif isinstance(value, dict) and isinstance(old, dict):
            merged[key] = _merge(old, value)
        else:
            merged[key] = value
    return merged


def _merge_named(key: str, entries: list[dict[str, Any]], over: dict[str, Any]) -> list[dict[str, Any]]:
    """Change list entries by name; `None` removes an entry, one that gives its own name is added.

    Stages are added after the last one that they may follow (`STAGE_RANKS`), other entries at the end.
    """
    for name, change in over.items():
        if not isinstance(change, dict | None):
            raise KeyError(
                f"{key}.{name} should be a mapping, or null to take the entry away; got {change!r}."
            )
    if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries):
        raise KeyError(f"{key} of the recipe that is extended should be mappings with a 'name'.")
    names = [entry["name"] for entry in entries]
    added = [name for name, entry in over.items() if name not in names and (entry or {}).get("name") == name]
    unknown = sorted(set(over) - set(names) - set(added))
    if unknown:
        raise KeyError(f"{key} has no entry {unknown[0]!r} to change; it has {', '.join(names)}.")
    changes = {name: change or {} for name, change in over.items()}
    kept = [
        _merge(entry, changes.get(entry["name"], {}))
        for entry in entries
        if over.get(entry["name"], {}) is not None
    ]
    for name in added:
        rank = _rank(changes[name])
        places = [place for place, entry in enumerate(kept, start=1) if _rank(entry) <= rank]
        kept.insert(max(places, default=0), changes[name])
    return kept


def _rank(entry: dict[str, Any]) -> int:
    """Return the rank of a stage; other entries follow all."""
    kind = entry.get("stage")
    return STAGE_RANKS.get(kind, len(STAGE_RANKS)) if isinstance(kind, str) else len(STAGE_RANKS)


def _at(content: Any, part: str) -> Any:
    """Return the key or index of a step of a dotted path; list entries are found by index or by name."""
    if not isinstance(content, list):
        return part
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in content]
    return names.index(part) if part in names else int(part)


def _apply(content: Any, override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator:
        raise RecipeError(f"--set takes KEY=VALUE, for instance stages.0.epochs=2; got {override!r}.")
    *parents, last = key.split(".")
    try:
        parsed = parse_yaml(value)
    except YamlError as error:
        raise RecipeError(f"--set {override}: {value!r} is not valid YAML: {error}") from error
    try:
        for part in parents:
            content = content[_at(content, part)]
        content[_at(content, last)] = parsed
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise RecipeError(f"--set {override}: the recipe has no {key!r} ({error}).") from error
