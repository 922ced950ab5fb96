"""Files on disk: written completely or not at all, checked names, digests, and one lock per folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from filelock import FileLock, Timeout

from mar_st.errors import MarError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Characters that control a terminal, and those that change the order of others.
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: One part of a name: no hidden file, no character that is special to a shell, a terminal or Windows.
_NAME_PART = re.compile(r"(?!\.)[^\x00-\x1f\x7f/\\:*?\"<>|]{1,255}")
#: Aliases (`*name`) that a YAML text may use; nested ones make a short text endless.
_MAX_ALIASES = 20
#: Name of the lock in a folder.
LOCK = ".lock"
#: The file that transformers' trainer writes last.
_STATE = "trainer_state.json"


class JsonError(ValueError):
    """A file that is not JSON; the message says why, in one line."""


class YamlError(ValueError):
    """A text that is not YAML; the message says why, in one line."""


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        JsonError: The file is not JSON, is nested too deeply, or holds half of a surrogate pair.
        OSError: The file cannot be read.
    """
    regular(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except ValueError as error:
        raise JsonError(one_line(error)) from error
    return content


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the JSON object that an earlier run wrote to a file; `None` if it is missing or damaged."""
    try:
        content = read_json(path)
    except (FileNotFoundError, JsonError):
        return None
    return content if isinstance(content, dict) else None


def finished_record(out: Path, name: str, key: str, wanted: Any) -> dict[str, Any] | None:
    """Return the record of finished work in a folder; `None` if the folder is missing or empty.

    Args:
        out: The folder.
        name: File of the record.
        key: Part of the record that says what the work depends on.
        wanted: What that part must be.

    Raises:
        MarError: There is something else.
    """
    record = read_record(out / name) if (out / name).is_file() else None
    if record is not None and record.get(key) == wanted:
        return record
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MarError(
            f"{out} exists and is not the result of this command with these data and settings. Delete it, or "
            "give another folder."
        )
    return None


class _Loader(yaml.SafeLoader):
    """Refuses what a recipe or a card never needs: repeated keys, merge keys and many aliases."""

    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > _MAX_ALIASES:
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.constructor.ConstructorError(None, None, f"more than {_MAX_ALIASES} aliases", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, "merge keys (<<) are not read", key.start_mark
                )
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    message = f"the key {key.value!r} occurs twice"
                    raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
                seen.add((key.tag, key.value))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text: plain values, lists and mappings.

    Raises:
        YamlError: The text is not YAML, is nested too deeply, has a key twice, merge keys, many aliases, an
            impossible number or date, or half of a surrogate pair.
    """
    try:
        content = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
        json.dumps(content, ensure_ascii=False, default=str).encode()
    except RecursionError as error:
        raise YamlError("it is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError) as error:
        raise YamlError(one_line(error)) from error
    return content


def card_header(folder: Path) -> dict[str, Any]:
    """Return the YAML header of a folder's README.md; an empty one if there is none.

    Raises:
        MarError: The header is not UTF-8, not YAML, or not a mapping.
    """
    card = regular(folder / "README.md")
    if not card.is_file():
        return {}
    try:
        text = card.read_text(encoding="utf-8-sig")
        match = re.match(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)", text, flags=re.DOTALL)
        header = parse_yaml(match.group(1)) if match else None
    except (UnicodeDecodeError, YamlError) as error:
        raise MarError(f"{card}: the YAML header is malformed ({error})") from None
    if not isinstance(header, dict | None):
        raise MarError(f"{card}: the YAML header must be a mapping")
    return header or {}


def load_array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """Return the array of an `.npy` file; pickles, archives and structured elements are refused.

    Args:
        path: The file.
        mapped: Map the file into memory, read-only.

    Raises:
        ValueError: The file is damaged.
        OSError: The file cannot be read.
    """
    regular(path)
    try:
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # numpy raises many kinds
        raise ValueError(f"{path} is damaged: {one_line(error)}") from error
    if not isinstance(array, np.ndarray) or array.dtype.names or array.dtype.kind == "V":
        raise ValueError(f"{path} does not hold one array of plain numbers.")
    return array


def regular(path: Path) -> Path:
    """Return a path that can be read to its end: devices and pipes are refused, which would hang.

    Raises:
        MarError: The path exists and is neither a file nor a folder.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise MarError(f"{path} is a pipe or a device. Give a regular file.")
    return path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def listed_path(folder: Path, name: object, listing: str | Path, error: type[MarError] = MarError) -> Path:
    """Return the path of a file or folder that a listing from an untrusted source names.

    Symbolic links may lead to files of the same folder, and to the blobs of the Hub's cache that contains it.

    Args:
        folder: Folder that the names of the listing are relative to.
        name: The name, with `/` between its parts.
        listing: File that the name was read from, for the message.
        error: Class of the error.

    Raises:
        MarError: The name is invalid or leads out of the folder; raised as `error`.
    """
    parts = name.split("/") if isinstance(name, str) else []
    path = folder.joinpath(*parts)
    valid = parts and all(_NAME_PART.fullmatch(part) for part in parts)
    if not valid or leads_outside(path, folder):
        raise error(
            f"{listing} names {name!r}, which is not a file below {folder}. Names are relative, "
            "without .., hidden files and links out of the folder. Get it again from where it was made."
        )
    return path


def leads_outside(path: Path, folder: Path) -> bool:
    """Return True if a path below a folder leads out of it through symbolic links.

    For a folder in the Hub's cache, links into that cache's blobs are allowed.
    """
    real, root = path.resolve(), folder.resolve()
    roots = [root, *(up.parent / "blobs" for up in root.parents if up.name == "snapshots")]
    return not any(real.is_relative_to(allowed) for allowed in roots)


# -- writing --


@contextmanager
def finished(path: Path) -> Iterator[Path]:
    """Provide a temporary name to write a file to, and move the file into place if the block succeeds.

    Each process and thread gets a name of its own. The file is deleted if the block fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}.part")
    part.unlink(missing_ok=True)
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def finished_folder(path: Path) -> Iterator[Path]:
    """Provide a new empty folder to write to, and move it into place if the block succeeds.

    An existing folder at `path` is replaced; the caller makes sure that it may be.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-", suffix=".part") as own:
        part = Path(own, path.name)
        part.mkdir()
        yield part
        replace_folder(part, path)


def replace_folder(part: Path, path: Path) -> None:
    """Move a folder into place; an existing one is deleted last, and comes back if the move fails."""
    if not path.exists():
        part.rename(path)
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-", suffix=".old") as aside:
        old = path.rename(Path(aside, path.name))
        try:
            part.rename(path)
        except BaseException:
            old.rename(path)
            raise


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a text in UTF-8, completely or not at all; `private`: only this user may read it."""
    with finished(path) as part:
        part.touch(0o600 if private else 0o666)
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any, *, indent: int | None = 2, sort_keys: bool = False) -> None:
    """Write JSON, completely or not at all."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=indent, sort_keys=sort_keys) + "\n")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, and keep other processes out; a killed process releases its lock.

    Raises:
        MarError: Another process is writing the folder.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise MarError(
            f"Another process is writing {folder}. Wait for it to end, or give another folder."
        ) from None
    try:
        yield
    finally:
        lock.release()
        if new and [path.name for path in folder.iterdir()] == [LOCK]:  # nothing was written
            (folder / LOCK).unlink()
            folder.rmdir()


def clear(folder: Path) -> None:
    """Delete everything in a folder but its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def last_checkpoint(folder: Path, *, delete: bool = True) -> str | None:
    """Return the newest complete checkpoint below `folder`.

    Args:
        folder: Folder of the checkpoints.
        delete: Delete checkpoints that were not written completely; only one process should do so.
    """
    numbered = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for _, path in sorted(numbered.items(), reverse=True):
        try:
            json.loads((path / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            if delete:
                shutil.rmtree(path)
        else:
            return str(path)
    return None


def user_cache() -> Path | None:
    """Return `$XDG_CACHE_HOME/medteb` (`~/.cache/medteb`), or `None` if others may write to it.

    Compiled kernels are loaded from there, so a folder that others may write to is not used.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "medteb")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):
        return None
    private = os.name == "nt" or (
        status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    return folder if private and os.access(folder, os.W_OK) else None


# -- messages and packages --


def one_line(error: BaseException, max_characters: int = 300) -> str:
    """Return the message of an error in one line; some libraries use several."""
    return " ".join(str(error).split())[:max_characters]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun for a message: `1 pair`, `1,200 pairs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    r"""Return a text for a terminal: characters that control it are escaped as in Python (`\x1b`)."""
    return _CONTROL_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], text)


def load_package(name: str, *, extra: str) -> Any:
    """Import an optional package, or a module of this distribution that needs some.

    Args:
        name: The package or module.
        extra: Extra of this distribution that installs what is needed.

    Raises:
        MarError: A package is not installed, or cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MarError(f"A package is missing ({error}). Install: pip install 'medteb[{extra}]'") from error
