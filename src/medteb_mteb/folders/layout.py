"""Finds the tables of a data folder, and reads its card and manifest; reads no table."""

from __future__ import annotations

import glob
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from medteb_mteb.editions import (
    MANIFEST_NAME,
    Edition,
    EditionError,
    leads_outside,
    load_edition,
    sha256_of,
    verify,
)
from medteb_mteb.folders.judged import judged_files
from medteb_mteb.folders.problems import FolderError
from medteb_mteb.folders.rows import SUFFIXES, TREC_SUFFIXES
from medteb_mteb.folders.settings import FolderSettings, read_settings

__all__ = [
    "QRELS_CONFIGS",
    "Layout",
    "alternatives",
    "card_header",
    "config_files",
    "config_names",
    "config_splits",
    "inspect_folder",
]

#: Configurations that may hold the qrels on the Hub; the first that a card declares is used.
QRELS_CONFIGS = ("qrels", "default")
#: Values of a card's header. A few lines of aliases can expand to billions, too many for any message.
_MAX_HEADER_VALUES = 100_000
_EXPECTED = (
    "Expected corpus, queries and qrels/<split> (retrieval; reranking with top_ranked), or <split> with the "
    f"columns of STS, pair classification, classification or clustering, as {', '.join(SUFFIXES)}"
)


@dataclass(frozen=True)
class Layout:
    """A folder's tables and description.

    Attributes:
        path: The folder, absolute.
        split: The split to evaluate.
        tables: Files by role: ``corpus``, ``queries``, ``qrels``, ``top_ranked``, ``judged``, or ``rows`` and
            ``train``.
        settings: Settings declared by the card and the manifest.
        licence: Licence as declared, if any.
        edition: The edition, if the folder has a manifest (its files are verified).
    """

    path: Path
    split: str
    tables: dict[str, list[Path]]
    settings: FolderSettings
    licence: str | None
    edition: Edition | None

    @property
    def name(self) -> str:
        """Return the task's name: the manifest's, else the declared one, else the folder's base name."""
        if self.edition is not None:
            return self.edition.task
        return self.settings.name or self.path.name

    def revision(self) -> str:
        """Return a sha256 (hex) that changes with the data and with everything else that changes scores.

        The edition's digest if there is a manifest, else a digest of the contents of the tables, their
        roles, the split and the declared type, prompt and main score. The folder's path does not count.
        """
        if self.edition is not None:
            return self.edition.digest
        described = {
            "split": self.split,
            "tables": {role: [sha256_of(file) for file in files] for role, files in self.tables.items()},
            "type": self.settings.type,
            "prompt": self.settings.prompt,
            "main_score": self.settings.main_score,
        }
        canonical = json.dumps(described, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def inspect_folder(
    path: Path | str, split: str = "test", *, check_manifest: bool = True, card_first: bool = False
) -> Layout:
    """Find the tables of a folder; with a manifest, verify every file against it.

    Args:
        path: The folder.
        split: The split to evaluate.
        check_manifest: Whether to compare the files with the manifest; False, e.g., to write a new one.
        card_first: Whether the card's settings replace the manifest's, to write a new manifest; otherwise
            the two must agree.

    Raises:
        FolderError: If the folder, a table or a declaration is missing or malformed.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise FolderError(folder, ["no such folder"])
    edition = None
    if (folder / MANIFEST_NAME).exists():
        try:
            edition = load_edition(folder)
            if check_manifest:
                verify(edition)
        except EditionError as error:
            raise FolderError(folder, [str(error)]) from None
    header = card_header(folder)
    settings = read_settings(folder, header, edition, card_first)
    tables = _tables(folder, header, split)
    licence = edition.licence if edition else header.get("license")
    return Layout(folder, split, tables, settings, str(licence) if licence else None, edition)


def alternatives(layout: Layout, role: str) -> list[Path]:
    """Return the files that hold the same table as ``role`` under the usual names, in another format."""
    used = set(layout.tables.get(role, []))
    return [file for files in _usual(layout.path, role, layout.split) for file in files if file not in used]


def config_files(folder: Path, config: str, split: str) -> list[Path]:
    """Return the files of a configuration and split, as the card declares them or by the usual names.

    Args:
        folder: The data set.
        config: Name of the configuration.
        split: Name of the split.

    Returns:
        The files; empty if the configuration or split does not exist.

    Raises:
        FolderError: The card's header is malformed, or declares missing files.
    """
    patterns = _configs(folder, card_header(folder)).get(config, {}).get(split)
    if patterns:
        return _declared_files(folder, patterns)
    candidates = [folder / config / f"{split}{suffix}" for suffix in SUFFIXES]
    shards = sorted((folder / config).glob(f"{glob.escape(split)}-*-of-*.parquet"))
    return [file for file in candidates if file.is_file()][:1] or shards


def config_names(folder: Path) -> list[str]:
    """Return the names of a data set's configurations, in the card's order, with folders of Parquet files.

    Raises:
        FolderError: The card's header is malformed.
    """
    inside = sorted(path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("*.parquet")))
    return list(dict.fromkeys([*_configs(folder, card_header(folder)), *inside]))


def config_splits(folder: Path, config: str) -> list[str]:
    """Return the names of the splits of one configuration, in the card's order and then by name.

    Raises:
        FolderError: The card's header is malformed.
    """
    declared = list(_configs(folder, card_header(folder)).get(config, {}))
    files = sorted(path.name for path in (folder / config).glob("*") if path.suffix in SUFFIXES)
    stems = [re.sub(r"(-\d+-of-\d+)?\.\w+$", "", name) for name in files]
    return list(dict.fromkeys([*declared, *stems]))


def card_header(folder: Path) -> dict[str, Any]:
    """Return the YAML header of a folder's README.md; an empty one if there is none.

    Raises:
        FolderError: If the header is not UTF-8, not YAML, or not a mapping.
    """
    card = folder / "README.md"
    if not card.is_file():
        return {}
    try:
        text = card.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FolderError(folder, [f"README.md: not valid UTF-8 at byte {error.start + 1}"]) from None
    match = re.match(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)", text, flags=re.DOTALL)
    if match is None:
        return {}
    try:
        header = yaml.safe_load(match.group(1))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a 13th month
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 2}" if mark else ""
        raise FolderError(folder, [f"README.md{line}: the YAML header is malformed"]) from None
    if header is None:
        return {}
    if not isinstance(header, dict):
        raise FolderError(folder, ["README.md: the YAML header must be a mapping"])
    if _values(header, {}) > _MAX_HEADER_VALUES:
        raise FolderError(folder, ["README.md: the aliases of the YAML header expand to too many values"])
    return header


def _values(content: Any, seen: dict[int, int]) -> int:
    """Return the number of values of an expanded YAML document; a recursive one exceeds every limit."""
    if not isinstance(content, (dict, list)):
        return 1
    if id(content) not in seen:
        seen[id(content)] = _MAX_HEADER_VALUES + 1  # until it is known, for values that contain themselves
        inner = content.values() if isinstance(content, dict) else content
        seen[id(content)] = 1 + sum(_values(one, seen) for one in inner)
    return seen[id(content)]


def _tables(folder: Path, header: dict[str, Any], split: str) -> dict[str, list[Path]]:
    configs = _configs(folder, header)
    if "instruction" in configs:
        raise FolderError(folder, ["README.md: instruction retrieval is not supported"])
    names = {"corpus": ("corpus",), "queries": ("queries", "query"), "top_ranked": ("top_ranked",)}
    tables: dict[str, list[Path]] = {}
    for role, aliases in names.items():
        files = _find(folder, configs, role, aliases, split, any_split=True)
        if files:
            tables[role] = files
    if "corpus" in tables or "queries" in tables:
        tables["qrels"] = _find(folder, configs, "qrels", QRELS_CONFIGS, split, any_split=False)
        missing = [role for role in ("corpus", "queries", "qrels") if not tables.get(role)]
        if missing:
            raise FolderError(folder, [f"no {' and no '.join(missing)} for split {split!r}. {_EXPECTED}"])
        judged = judged_files(folder)
        if outside := [path for path in judged if leads_outside(path, folder)]:
            raise FolderError(folder, [f"{outside[0]} is a symbolic link out of the folder"])
        return tables | ({"judged": judged} if judged else {})
    rows = _find(folder, configs, "rows", ("default",), split, any_split=False)
    if not rows:
        listing = ", ".join(sorted(item.name for item in folder.iterdir())) or "nothing"
        raise FolderError(folder, [f"no data for split {split!r}. {_EXPECTED}; found {listing}"])
    tables["rows"] = rows
    train = _find(folder, configs, "train", ("default",), "train", any_split=False)
    return tables | ({"train": train} if train else {})


def _find(
    folder: Path,
    configs: dict[str, dict[str, list[str]]],
    role: str,
    aliases: tuple[str, ...],
    split: str,
    *,
    any_split: bool,
) -> list[Path]:
    for alias in aliases:
        splits = configs.get(alias, {})
        # A corpus is usually declared under one split, whatever that is called.
        patterns = splits.get(split) or (
            next(iter(splits.values())) if any_split and len(splits) == 1 else []
        )
        if patterns:
            return _declared_files(folder, patterns)
    file_groups = _usual(folder, role, split)
    if len(file_groups) > 1 and role != "qrels":  # two forms of the qrels are compared when they are read
        names = " and ".join(str(files[0].relative_to(folder)) for files in file_groups)
        raise FolderError(folder, [f"{names} hold the same table; keep one of them"])
    return file_groups[0] if file_groups else []


def _declared_files(folder: Path, patterns: list[str]) -> list[Path]:
    files: list[Path] = []
    for pattern in patterns:
        pure = PurePosixPath(pattern)
        if pure.is_absolute() or ".." in pure.parts or ":" in pattern:
            raise FolderError(folder, [f"README.md: data_files {pattern!r} must stay inside the folder"])
        try:
            matches = sorted(path for path in folder.glob(pattern) if path.is_file())
        except (OSError, ValueError, NotImplementedError, IndexError, re.error) as error:
            # A name that is too long, or a pattern that pathlib does not take.
            reason = " ".join(str(error).split())[:100]
            raise FolderError(
                folder, [f"README.md: data_files {pattern[:80]!r} cannot be looked up ({reason})"]
            ) from error
        if not matches:
            raise FolderError(folder, [f"README.md: declares {pattern!r}, but there is no such file"])
        if outside := [path for path in matches if leads_outside(path, folder)]:
            raise FolderError(folder, [f"{outside[0]} is a symbolic link out of the folder"])
        files.extend(matches)
    return files


def _usual(folder: Path, role: str, split: str) -> list[list[Path]]:
    stems = {
        "qrels": [f"qrels/{split}"],
        "rows": [split, f"data/{split}"],
        "train": [split, f"data/{split}"],
    }.get(role, [role, f"{role}/{split}", f"{role}/{role}"])
    file_groups: list[list[Path]] = []
    for stem in stems:
        for suffix in (*SUFFIXES, *TREC_SUFFIXES) if role == "qrels" else SUFFIXES:
            file = folder / f"{stem}{suffix}"
            if file.is_file():
                file_groups.append([file])
        if shards := sorted(folder.glob(f"{stem}-*-of-*.parquet")):
            file_groups.append(shards)
    return file_groups


def _configs(folder: Path, header: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """``configs`` of a Hub card as config -> split -> patterns."""
    result: dict[str, dict[str, list[str]]] = {}
    configs = header.get("configs") or []
    try:
        for config in configs:
            data_files = config.get("data_files") or []
            if isinstance(data_files, str) or (data_files and isinstance(data_files[0], str)):
                data_files = [{"split": "train", "path": data_files}]
            splits: dict[str, list[str]] = {}
            for entry in data_files:
                patterns = entry["path"]
                splits[str(entry["split"])] = [patterns] if isinstance(patterns, str) else list(patterns)
            result[str(config.get("config_name", "default"))] = splits
    except (AttributeError, KeyError, TypeError):
        raise FolderError(
            folder, ["README.md: 'configs' must list config_name and data_files (split, path)"]
        ) from None
    return result
