"""Responses of a source in a folder: written one by one as they arrive, frozen when the fetch is complete.

`responses/` holds a file per response, named by a digest of its address. During the fetch `fetched.part`
lists the responses received so far; an interrupted fetch resumes from it. After the last response it is
replaced by `fetched.json`: address, file, sha256 and day of each response, in the order of the requests.
Nothing more is fetched into a frozen folder, so builds from it are reproducible.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from mar_st.files import JsonError, finished, make_folder, read_json, sync_folder, write_json
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.web import TransientError, address_of
from medteb_mteb.editions import leads_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Protocol, TypeVar

    from medteb_mteb.curation.relatives.fetch.web import Web

    Content = TypeVar("Content")

    class Requester(Protocol):
        """Returns the content of the response to a request."""

        def __call__(
            self, path: str, params: Mapping[str, Any], parse: Callable[[bytes], Content], suffix: str
        ) -> Content:
            """Return the content of the response; `suffix` is the suffix of its file."""
            ...


__all__ = ["FROZEN_FILE", "Fetching", "Frozen", "Requester", "read_frozen"]

FROZEN_FILE, PART_FILE, RESPONSES_FOLDER = "fetched.json", "fetched.part", "responses"
_FORMAT, _VERSION = "medteb-fetched", 1


def _file_of(address: str, suffix: str) -> str:
    return f"{hashlib.sha256(address.encode()).hexdigest()[:32]}{suffix}"


class Fetching:
    """A folder that responses are fetched into; for those it already holds, `ask` sends no request.

    Args:
        folder: The folder; only one process may work on it.
        identity: Source and extent; a fetch can be resumed only with the same ones.
        official: Official address of the API; it names the responses, even those of a mirror.
        web: Client of the server.
        say: Called with a line of progress from time to time.

    Raises:
        BuildError: The folder holds responses of another fetch, or other files.
    """

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        official: str,
        web: Web,
        say: Callable[[str], None],
    ) -> None:
        self.folder, self.identity, self.official, self.web, self.say = (
            folder, dict(identity), official, web, say,
        )  # fmt: skip
        self.requested = 0
        self._used: dict[str, dict[str, Any]] = {}
        if leads_outside(folder / PART_FILE, folder) or leads_outside(folder / RESPONSES_FOLDER, folder):
            raise BuildError(
                f"{folder}: {PART_FILE} or {RESPONSES_FOLDER} is a symbolic link out of the folder."
            )
        self._stored = self._read_part_file()

    def ask(
        self, path: str, params: Mapping[str, Any], parse: Callable[[bytes], Content], suffix: str
    ) -> Content:
        """Return the content of a response, from the folder or else from the server.

        Raises:
            BuildError: There is no usable response, or it cannot be written.
        """
        address = address_of(self.official, path, params)  # without secrets and contact
        name = _file_of(address, suffix)
        body = self._stored_body(name)
        if body is not None:
            self._used[address] = self._stored[name]
            return _content(body, parse, name)
        body, content = self.web.get(path, params, parse)
        self.requested += 1
        entry = {
            "url": address,
            "file": name,
            "sha256": hashlib.sha256(body).hexdigest(),
            "day": dt.datetime.now(dt.UTC).date().isoformat(),
        }
        try:
            with finished(self.folder / RESPONSES_FOLDER / name) as part:
                part.write_bytes(body)
            self._append(entry)
        except OSError as error:
            raise self._unwritable(error) from error
        self._stored[name] = self._used[address] = entry
        if self.requested % 50 == 0:
            self.say(f"{self.requested:,} responses fetched, {len(self._used) - self.requested:,} kept")
        return content

    def freeze(self) -> None:
        """Write the list of all requested responses, and end the fetch.

        Raises:
            BuildError: The list cannot be written.
        """
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            **self.identity,
            "asked": self.web.base,
            "responses": list(self._used.values()),
        }
        try:
            write_json(self.folder / FROZEN_FILE, content)
            (self.folder / PART_FILE).unlink(missing_ok=True)
            sync_folder(self.folder)
        except OSError as error:
            raise self._unwritable(error) from error

    def _stored_body(self, name: str) -> bytes | None:
        """Return the body of a listed response; None if it is missing or was changed."""
        entry, path = self._stored.get(name), self.folder / RESPONSES_FOLDER / name
        if entry is None or not path.is_file() or path.is_symlink():
            return None
        body = path.read_bytes()
        return body if hashlib.sha256(body).hexdigest() == entry["sha256"] else None

    def _read_part_file(self) -> dict[str, dict[str, Any]]:
        """Return the entries of `fetched.part`; a truncated last line is also removed from the file."""
        path = self.folder / PART_FILE
        first = json.dumps({"format": _FORMAT, "version": _VERSION, **self.identity}, ensure_ascii=False)
        if not path.is_file():
            others = sorted(one.name for one in self.folder.iterdir() if not one.name.startswith("."))
            if others:
                raise BuildError(f"{self.folder} is not empty ({others[0]}); give a new folder.")
            make_folder(self.folder / RESPONSES_FOLDER)
            with finished(path) as part:
                part.write_text(first + "\n", encoding="utf-8")
            return {}
        try:
            text = path.read_bytes().decode("utf-8", "replace")
            whole = text[: text.rfind("\n") + 1]
            header, *lines = whole.splitlines() or [""]
            entries = [json.loads(line) for line in lines]
            by_file = {one["file"]: one for one in entries if _is_entry(one)}
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BuildError(f"{path} is damaged ({error}). Delete the folder and fetch again.") from None
        if header != first:
            raise BuildError(
                f"{self.folder} holds responses of another fetch ({header[:200]}). Give another folder."
            )
        if whole != text:
            with finished(path) as part:
                part.write_text(whole, encoding="utf-8")
        return by_file

    def _unwritable(self, error: OSError) -> BuildError:
        return BuildError(
            f"{self.folder} cannot be written ({error.strerror}); what was fetched before is kept."
        )

    def _append(self, entry: Mapping[str, Any]) -> None:
        handle = os.open(self.folder / PART_FILE, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, (json.dumps(entry, ensure_ascii=False) + "\n").encode())
            os.fsync(handle)
        finally:
            os.close(handle)


def _content(body: bytes, parse: Callable[[bytes], Content], what: str) -> Content:
    try:
        return parse(body)
    except TransientError as again:  # it was usable when it was fetched, so another version fetched it
        raise BuildError(f"{what} is {again.reason}; fetch into a new folder.") from None


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == {"url", "file", "sha256", "day"}
        and all(isinstance(value, str) for value in entry.values())
    )


class Frozen:
    """A complete folder of responses; `ask` reads them and checks every digest.

    Attributes:
        folder: The folder.
        official: Official address of the API.
        extent: The fetched extent, in the format of the source's module.
    """

    def __init__(self, folder: Path, content: Mapping[str, Any], official: str) -> None:
        self.folder, self.official = folder, official
        self.extent: Mapping[str, Any] = content["extent"]
        self._entries = {one["url"]: one for one in content["responses"]}

    @property
    def count(self) -> int:
        """Return the number of responses."""
        return len(self._entries)

    def most(self, kind: str, label: str | None = None) -> int:
        """Return the requested maximum of a kind, such as `studies`, or pages of one of the `categories`.

        Raises:
            BuildError: The folder was fetched without this kind or label.
        """
        limit = self.extent.get(kind)
        if label is not None:
            limit = limit.get(label) if isinstance(limit, dict) else None
        if type(limit) is not int or limit < 1:
            what = f"{kind} {label!r}" if label is not None else kind
            raise BuildError(f"{self.folder} holds no {what}; it was fetched for other tasks.")
        return limit

    def ask(
        self, path: str, params: Mapping[str, Any], parse: Callable[[bytes], Content], suffix: str
    ) -> Content:
        """Return the content of a response.

        Raises:
            BuildError: The response was not fetched, is missing, or was changed.
        """
        address = address_of(self.official, path, params)
        entry = self._entries.get(address)
        if entry is None:
            raise BuildError(
                f"{self.folder} holds no response to {address[:300]}; it was fetched for other tasks."
            )
        file = self.folder / RESPONSES_FOLDER / _file_of(address, suffix)
        if leads_outside(file, self.folder):
            raise BuildError(f"{file} is a symbolic link out of the folder.")
        try:
            body = file.read_bytes()
        except OSError as error:
            raise BuildError(f"{file} cannot be read ({error.strerror}).") from None
        if hashlib.sha256(body).hexdigest() != entry["sha256"]:
            raise BuildError(f"{file} is not the response that {FROZEN_FILE} lists; it was changed.")
        return _content(body, parse, str(file))


def read_frozen(path: Path, source: str, official: str) -> Frozen:
    """Open a frozen folder.

    Args:
        path: The folder's `fetched.json`.
        source: Required source.
        official: Official address of the API.

    Raises:
        BuildError: The file is malformed, or belongs to another source.
    """
    try:
        content = read_json(path)
        sound = (
            (content["format"], content["version"]) == (_FORMAT, _VERSION)
            and isinstance(content["source"], str)
            and isinstance(content["extent"], dict)
            and all(map(_is_entry, content["responses"]))
        )
    except (JsonError, OSError, KeyError, TypeError) as error:
        raise BuildError(f"{path} is damaged ({error}).") from None
    if not sound:
        raise BuildError(f"{path} is not a list of responses that this version reads.")
    if content["source"] != source:
        raise BuildError(f"{path} is of {repr(content['source'])[:40]}; expected {source}.")
    return Frozen(path.parent, content, official)
