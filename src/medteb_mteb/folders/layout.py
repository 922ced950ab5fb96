"""Finds the tables of a data folder, and reads its card and manifest; reads no table."""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from mar_st.errors import MarError
from mar_st.files import card_header, leads_outside, sha256
from mar_st.options import Settings, invalid
from medteb_mteb.editions import MANIFEST_NAME, Edition, load_edition, verify

TaskType = Literal["Retrieval", "Reranking", "STS", "PairClassification", "Classification", "Clustering"]

SUFFIXES = (".jsonl", ".json", ".tsv", ".csv", ".jsonl.gz", ".json.gz", ".tsv.gz", ".csv.gz", ".parquet")
#: Qrels in TREC's format: query, iteration, document, grade, apart by blanks.
TREC_SUFFIXES = (".trec", ".qrels")
#: Configurations that may hold the qrels on the Hub; the first that a card declares is used.
QRELS_CONFIGS = ("qrels", "default")
#: Lists of candidates that a Nano set has.
BM25, HYBRID = "bm25", "reranking_hybrid"
#: Pairs that the judges do not agree on.
DISPUTED = "disputed.tsv"
#: Files beside the tables that list judged pairs, and the column that says more about a pair.
JUDGED_COLUMNS = {"labels.tsv": "score", "grades.tsv": "grade", DISPUTED: ""}
#: Number of problems to show of a folder, and of one kind, so that one mistake does not hide the others.
MOST_SHOWN, SHOWN_PER_KIND = 20, 5
#: Settings that change scores: a manifest pins them.
PINNED_SETTINGS = ("type", "prompt", "main_score", "ignore_identical_ids")
_EXPECTED = (
    "Expected corpus, queries and qrels/<split> (retrieval; reranking with top_ranked), or <split> with the "
    "columns of STS, pair classification, classification or clustering, as .jsonl, .json, .tsv, .csv (also "
    ".gz) or .parquet"
)


class FolderError(MarError):
    """A data folder cannot be used; the message lists its problems.

    Args:
        folder: The folder, or a file that was given by itself.
        problems: A line per shown problem.
        total: Number of problems found, shown or not; default: those shown.
    """

    def __init__(self, folder: Path, problems: list[str], total: int | None = None) -> None:
        number = len(problems) if total is None else total
        if number == 1:
            super().__init__(f"{folder}: {problems[0]}")
        else:
            rest = [f"... and {number - len(problems)} more"] * (number > len(problems))
            super().__init__("\n  ".join([f"{folder}: {number} problems", *problems, *rest]))


class Problems:
    """Collects the problems of one folder, to raise them as one error.

    Args:
        folder: The folder being read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.examples: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self, place: str, kind: str, message: str) -> None:
        """Record a problem.

        Args:
            place: Place in the folder, such as `FILE:LINE`.
            kind: Key that groups problems of the same cause.
            message: The problem and, if helpful, what was expected.
        """
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_PER_KIND:
            self.examples.append(f"{place}: {message}".replace(f"{self.folder}/", ""))

    def raise_if_any(self) -> None:
        """Raise `FolderError` with everything recorded so far, if there is anything."""
        if number := self.counts.total():
            raise FolderError(self.folder, self.examples[:MOST_SHOWN], number)


def _codes(value: Any) -> Any:
    values = value if isinstance(value, list) else [] if value is None else [value]
    return ["no" if one is False else one for one in values]  # YAML 1.1 reads Norwegian `no` as false


class FolderSettings(Settings):
    """Settings of a task, from the manifest or from the `medteb:` mapping of the card's header.

    The Hub's `language` key of that header gives the languages if these settings do not.
    """

    name: str | None = None
    type: TaskType | None = None
    prompt: str | dict[Literal["query", "document"], str] | None = None
    main_score: str | None = None
    languages: Annotated[list[str], BeforeValidator(_codes)] = Field(default_factory=list)
    description: str | None = None
    ignore_identical_ids: bool = Field(
        default=False,
        description="Leave the document with the id of the query out of its ranking, as mteb's setting does.",
    )


@dataclass(frozen=True)
class Layout:
    """A folder's tables and description.

    Attributes:
        path: The folder, absolute.
        split: The split to evaluate.
        tables: Files by role: `corpus`, `queries`, `qrels`, `top_ranked`, `judged`, or `rows` and `train`.
        settings: Settings declared by the card and the manifest.
        hub_languages: Languages of the Hub's key, for settings without languages.
        licence: Licence as declared, if any.
        edition: The edition, if the folder has a manifest (its files are verified).
    """

    path: Path
    split: str
    tables: dict[str, list[Path]]
    settings: FolderSettings
    hub_languages: list[str]
    licence: str | None
    edition: Edition | None

    @property
    def name(self) -> str:
        """Return the task's name: the manifest's, else the declared one, else the folder's base name."""
        return self.edition.task if self.edition is not None else self.settings.name or self.path.name

    @property
    def languages(self) -> list[str]:
        """Return the languages as declared."""
        return self.settings.languages or self.hub_languages

    def revision(self) -> str:
        """Return a sha256 (hex) that changes with the data and with everything else that changes scores.

        The edition's digest if there is a manifest, else a digest of the contents of the tables, their
        roles, the split and the settings that change scores. The folder's path does not count.
        """
        if self.edition is not None:
            return self.edition.digest
        pinned = {key: getattr(self.settings, key) for key in PINNED_SETTINGS}
        if not pinned["ignore_identical_ids"]:
            del pinned["ignore_identical_ids"]
        tables = {role: [sha256(file) for file in files] for role, files in self.tables.items()}
        described = {"split": self.split, "tables": tables, **pinned}
        canonical = json.dumps(described, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def inspect_folder(path: Path | str, split: str = "test", *, pinned: bool = True) -> Layout:
    """Find the tables of a folder; with a manifest, verify every file against it.

    Args:
        path: The folder.
        split: The split to evaluate.
        pinned: Whether files and settings must agree with the manifest; False, e.g., to write a new one: then
            the card's settings count.

    Raises:
        FolderError: The folder, a table or a declaration is missing or malformed.
        MarError: The manifest is malformed, or a file differs from it.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise FolderError(folder, ["no such folder"])
    edition = None
    if (folder / MANIFEST_NAME).exists():
        edition = load_edition(folder)
        if pinned:
            verify(edition)
    header = card_header(folder)
    settings = _settings(folder, header, edition, pinned)
    licence = edition.licence if edition else header.get("license")
    languages = [str(code) for code in _codes(header.get("language"))]
    tables = _tables(folder, header, split)
    return Layout(folder, split, tables, settings, languages, str(licence) if licence else None, edition)


def _settings(folder: Path, header: dict[str, Any], edition: Edition | None, pinned: bool) -> FolderSettings:
    declared = header.get("medteb") or {}
    if not isinstance(declared, dict):
        raise FolderError(folder, ["README.md: 'medteb' must be a mapping"])
    if edition is not None:
        stated = {key: edition.extra[key] for key in FolderSettings.model_fields if key in edition.extra}
        for key in PINNED_SETTINGS if pinned else ():
            if key in declared and declared[key] != stated.get(key):
                message = f"{key} is {declared[key]!r}, but {MANIFEST_NAME} says {stated.get(key)!r}"
                raise FolderError(folder, [f"README.md: {message}"])
        declared = {**declared, **stated} if pinned else {**stated, **declared}
    try:
        return FolderSettings.model_validate({key: one for key, one in declared.items() if one is not None})
    except ValidationError as error:
        raise FolderError(folder, [f"settings of the card or manifest: {invalid(error)}"]) from None


def config_files(folder: Path, config: str, split: str) -> list[Path]:
    """Return the files of a configuration and split, as the card declares them or by the usual names.

    Args:
        folder: The data set.
        config: Name of the configuration.
        split: Name of the split.

    Raises:
        FolderError: The card's header is malformed, or declares missing files.
    """
    patterns = _configs(folder, card_header(folder)).get(config, {}).get(split)
    if patterns:
        return _declared_files(folder, patterns)
    return next(iter(_existing(folder, [f"{config}/{split}"], SUFFIXES)), [])


def config_names(folder: Path) -> list[str]:
    """Return the names of a data set's configurations, in the card's order, then folders of Parquet files."""
    inside = sorted(path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("*.parquet")))
    return list(dict.fromkeys([*_configs(folder, card_header(folder)), *inside]))


def config_splits(folder: Path, config: str) -> list[str]:
    """Return the names of the splits of one configuration, in the card's order and then by name."""
    declared = list(_configs(folder, card_header(folder)).get(config, {}))
    files = sorted(path.name for path in (folder / config).glob("*") if path.name.endswith(SUFFIXES))
    stems = (re.sub(r"(-\d+-of-\d+)?\.\w+(\.gz)?$", "", name) for name in files)
    return list(dict.fromkeys([*declared, *stems]))


def is_nano(folder: Path) -> bool:
    """Return True if a folder is a Nano set: it has a list of candidates of BM25, or a hybrid one."""
    folder = folder.expanduser()
    return folder.is_dir() and bool({BM25, HYBRID} & {*config_names(folder)}) and bool(splits_of(folder))


def splits_of(folder: Path) -> list[str]:
    """Return the names of the splits of a Nano set that have all three tables, in the card's order."""
    splits = [config_splits(folder, name) for name in ("corpus", "queries", "qrels")]
    return [split for split in splits[0] if all(split in others for others in splits[1:])]


def _tables(folder: Path, header: dict[str, Any], split: str) -> dict[str, list[Path]]:
    configs = _configs(folder, header)

    def find(role: str, names: tuple[str, ...], stems: list[str], any_split: bool = False) -> list[Path]:
        for name in names:
            splits = configs.get(name, {})
            # A corpus is usually declared under one split, whatever that is called.
            only = next(iter(splits.values())) if any_split and len(splits) == 1 else []
            if patterns := splits.get("train" if role == "train" else split) or only:
                return _declared_files(folder, patterns)
        forms = _existing(folder, stems, (*SUFFIXES, *TREC_SUFFIXES) if role == "qrels" else SUFFIXES)
        if len(forms) > 1:
            both = " and ".join(str(files[0].relative_to(folder)) for files in forms)
            raise FolderError(folder, [f"{both} hold the same table; keep one of them"])
        return forms[0] if forms else []

    tables = {
        role: find(role, (role, *more), [role, f"{role}/{split}", f"{role}/{role}"], True)
        for role, more in {"corpus": (), "queries": ("query",), "top_ranked": ()}.items()
    }
    if tables["corpus"] or tables["queries"]:
        tables["qrels"] = find("qrels", QRELS_CONFIGS, [f"qrels/{split}", "qrels"])
        if missing := [role for role in ("corpus", "queries", "qrels") if not tables[role]]:
            raise FolderError(folder, [f"no {' and no '.join(missing)} for split {split!r}. {_EXPECTED}"])
        tables["judged"] = [folder / name for name in JUDGED_COLUMNS if _lists_pairs(folder / name)]
    else:
        for role, name in (("rows", split), ("train", "train")):
            tables[role] = find(role, ("default",), [name, f"data/{name}"])
        if not tables["rows"]:
            listing = ", ".join(sorted(item.name for item in folder.iterdir())) or "nothing"
            raise FolderError(folder, [f"no data for split {split!r}. {_EXPECTED}; found {listing}"])
    for path in (path for files in tables.values() for path in files):
        if leads_outside(path, folder):
            raise FolderError(folder, [f"{path} is a symbolic link out of the folder"])
    return {role: files for role, files in tables.items() if files}


def _lists_pairs(file: Path) -> bool:
    """Return True if a file exists and has the columns of judged pairs."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        header = stream.readline(4096).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return {"query-id", "corpus-id", JUDGED_COLUMNS[file.name]} - {""} <= set(header.rstrip().split("\t"))


def _declared_files(folder: Path, patterns: list[str]) -> list[Path]:
    files: list[Path] = []
    for pattern in patterns:
        pure = PurePosixPath(pattern)
        if pure.is_absolute() or ".." in pure.parts or ":" in pattern:
            raise FolderError(folder, [f"README.md: data_files {pattern!r} must stay inside the folder"])
        try:  # a name may be too long, and the like
            matches = sorted(path for path in folder.glob(pattern) if path.is_file())
        except (OSError, ValueError, NotImplementedError, IndexError):
            matches = []
        if not matches:
            raise FolderError(folder, [f"README.md: declares {pattern[:80]!r}, but there is no such file"])
        files.extend(matches)
    return files


def _existing(folder: Path, stems: list[str], suffixes: tuple[str, ...]) -> list[list[Path]]:
    """Return the files of one table in each form in which it exists."""
    forms = [
        [file] for stem in stems for suffix in suffixes if (file := folder / f"{stem}{suffix}").is_file()
    ]
    shards = (sorted(folder.glob(f"{glob.escape(stem)}-*-of-*.parquet")) for stem in stems)
    return [*forms, *filter(None, shards)]


def _configs(folder: Path, header: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return `configs` of a Hub card as config -> split -> patterns."""

    def listed(one: Any) -> list[str]:
        if isinstance(one, str):
            return [one]
        if isinstance(one, list) and all(isinstance(part, str) for part in one):
            return one
        raise TypeError(one)

    result: dict[str, dict[str, list[str]]] = {}
    try:
        for config in header.get("configs") or []:
            files = config.get("data_files") or []
            if isinstance(files, str) or (files and isinstance(files[0], str)):
                files = [{"split": "train", "path": files}]
            splits = {str(entry["split"]): listed(entry["path"]) for entry in files}
            result[str(config.get("config_name", "default"))] = splits
    except (AttributeError, KeyError, TypeError):
        message = "README.md: 'configs' must list config_name and data_files (split, path)"
        raise FolderError(folder, [message]) from None
    return result
