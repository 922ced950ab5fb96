"""Recipes: one YAML file describes one model, as an ordered list of training stages."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mar_st.errors import MarError
from mar_st.files import YamlError, parse_yaml
from mar_st.options import read_yaml, validated
from mar_st.recipes.schema import Recipe
from mar_st.recipes.stage_schema import STAGE_RANKS

RECIPES = Path(__file__).parent


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
        overrides: `a.b=value` settings applied on top in the same way (`stages.align.epochs=2`); values are
            YAML.

    Raises:
        MarError: The recipe does not exist, its YAML is broken, a key is unknown or a combination is
            impossible.
    """
    content = read_content(name)
    for override in overrides or []:
        content = merged(content, _changes(override), f"--set {override}")
    return validated(Recipe, content, str(name))


def read_content(name: str | Path) -> dict[str, Any]:
    """Return the content of a recipe, merged over the recipes that it extends; see `load_recipe`."""
    return _read(find_yaml(name, RECIPES, recipe_names()), ())


def find_yaml(name: str | Path, folder: Path, known: list[str]) -> Path:
    """Return the path of a YAML file, or that of a packaged name.

    Raises:
        MarError: There is no such file or name.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):  # a shipped name may hold a dot
        path = folder / f"{name}.yaml"
    with suppress(OSError):  # a name that is too long for a file
        if path.exists() and not path.is_dir():
            return path
    similar = get_close_matches(str(name), known)
    hint = f" Did you mean {similar[0]!r}?" if similar else ""
    raise MarError(f"No {str(name)[:200]!r}.{hint} Packaged are {', '.join(known)}; or give a .yaml file.")


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping of a YAML file.

    Raises:
        MarError: The file is not valid YAML, or holds something else.
    """
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise MarError(f"{path} should hold a mapping with 'name' and so on.")
    return content


def _read(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Return a recipe file merged over the recipe it `extends`: mappings merge, all else replaces."""
    if path.resolve() in chain:
        raise MarError(f"{path} extends itself, by way of {', '.join(p.name for p in chain)}.")
    content = read_mapping(path)
    base = content.pop("extends", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise MarError(f"{path}: extends should be the name or the file of one recipe; got {base!r}.")
    beside = path.parent / base if Path(base).suffix in (".yaml", ".yml") else base
    whole = _read(find_yaml(beside, RECIPES, recipe_names()), (*chain, path.resolve()))
    return merged(whole, content, str(path))


def merged(base: dict[str, Any], over: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the content of a recipe with changes laid over it, see `load_recipe`.

    Raises:
        MarError: A change names a list entry that does not exist; `where` starts the message.
    """
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, list):
            result[key] = _merge_named(key, old, value, where)
        elif isinstance(value, dict) and isinstance(old, dict):
            result[key] = merged(old, value, where)
        else:
            result[key] = value
    return result


def _merge_named(key: str, entries: list[Any], over: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Change list entries by name; `None` removes an entry, one that gives its own name is added.

    Stages are added after the last one that they may follow (`STAGE_RANKS`), other entries at the end.
    """
    wrong = next((name for name, change in over.items() if not isinstance(change, dict | None)), None)
    if wrong is not None:
        raise MarError(f"{where}: {key}.{wrong} should be a mapping, or null to take the entry away.")
    if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries):
        raise MarError(f"{where}: {key} of the recipe that is extended should be mappings with a 'name'.")
    names = [entry["name"] for entry in entries]
    added = [name for name, entry in over.items() if name not in names and (entry or {}).get("name") == name]
    unknown = sorted(set(over) - set(names) - set(added))
    if unknown:
        raise MarError(f"{where}: {key} has no entry {unknown[0]!r} to change; it has {', '.join(names)}.")
    kept = [
        merged(entry, over.get(entry["name"]) or {}, where)
        for entry in entries
        if over.get(entry["name"], {}) is not None
    ]
    for name in added:
        rank = _rank(over[name])
        places = [place for place, entry in enumerate(kept, start=1) if _rank(entry) <= rank]
        kept.insert(max(places, default=0), over[name])
    return kept


def _rank(entry: dict[str, Any]) -> int:
    """Return the rank of a stage; other entries follow all."""
    return STAGE_RANKS.get(str(entry.get("stage")), len(STAGE_RANKS))


def _changes(override: str) -> dict[str, Any]:
    """Return an override `a.b=value` in the form of a recipe that extends another."""
    key, separator, value = override.partition("=")
    if not separator:
        raise MarError(f"--set takes KEY=VALUE, for instance stages.align.epochs=2; got {override!r}.")
    try:
        changes = parse_yaml(value)
    except YamlError as error:
        raise MarError(f"--set {override}: {value!r} is not valid YAML: {error}") from error
    for part in reversed(key.split(".")):
        changes = {part: changes}
    return dict(changes)
