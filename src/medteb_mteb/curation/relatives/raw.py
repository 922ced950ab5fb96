"""Reads raw files as published by their sources, and treats every file as hostile.

Files are found by name in a folder, and may be inside `.gz`, `.zip` or `.tar.gz` files there. Sizes are
limited before anything is unpacked, nothing is unpacked onto the disk, and XML must not declare entities.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, NoReturn, cast
from xml.etree import ElementTree as ET

from mar_st.files import one_line
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import leads_outside, sha256_of
from medteb_mteb.folders.rows import MAX_CELL_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Protocol

    class Readable(Protocol):
        """A stream that is read in pieces."""

        def read(self, size: int, /) -> bytes:
            """Return up to `size` bytes."""
            ...


__all__ = ["Archive", "Raw", "clean", "in_one_line", "parse_csv", "parse_json", "parse_xml"]

#: Maximum bytes of one file, and of all files read from one archive.
MAX_BYTES = 2 << 30
#: Maximum members of an archive.
MAX_MEMBERS = 200_000
#: Decompressed bytes per compressed byte above which an archive counts as a zip bomb; text compresses by a
#: factor of 3 to 20.
MAX_COMPRESSION_RATIO = 200
_CHUNK_BYTES = 1 << 20
ARCHIVE_ERRORS = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError,
                   NotImplementedError)  # fmt: skip


class Raw:
    """A folder of raw files.

    Attributes:
        folder: The folder, absolute.
        used: sha256 of the files that were read, by path in the folder.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder.

        Raises:
            BuildError: The folder does not exist.
        """
        if not folder.is_dir():
            raise BuildError(f"{folder}: no such folder; give the folder of the raw files.")
        self.folder = folder.expanduser().resolve()
        self.used: dict[str, str] = {}

    def find(self, pattern: str, *, needed: str = "") -> list[Path]:
        """Return the matching files anywhere in the folder, sorted by path; they count as read.

        Args:
            pattern: File name; may contain `*`.
            needed: What the file is and where it comes from. If given, finding no file is an error.

        Raises:
            BuildError: A needed file is missing, or a file is a link out of the folder.
        """
        paths = sorted(path for path in self.folder.rglob(pattern) if path.is_file())
        if needed and not paths:
            raise BuildError(f"{self.folder} has no {pattern}: {needed}.")
        for path in paths:
            if leads_outside(path, self.folder):
                raise BuildError(f"{path} is a symbolic link out of the folder.")
            self.used[path.relative_to(self.folder).as_posix()] = sha256_of(path)
        return paths

    def one(self, pattern: str, needed: str) -> Path:
        """Return the only file that matches a name.

        Raises:
            BuildError: No file matches, or more than one.
        """
        paths = self.find(pattern, needed=needed)
        if len(paths) > 1:
            names = " and ".join(path.relative_to(self.folder).as_posix() for path in paths[:2])
            raise BuildError(f"{self.folder} has several {pattern} ({names}); keep one.")
        return paths[0]

    def as_archive(self, name: str) -> Archive:
        """Return the folder itself as an archive; its XML files get a single digest.

        Args:
            name: Name of the digest in `used`.
        """
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*.xml")):
            if path.is_file() and not leads_outside(path, self.folder):
                digest.update(f"{path.relative_to(self.folder).as_posix()} {sha256_of(path)}\n".encode())
        self.used[name] = digest.hexdigest()
        return Archive(self.folder)

    def has(self, pattern: str) -> bool:
        """Return True if a file matches; it does not count as read."""
        return any(path.is_file() for path in self.folder.rglob(pattern))


class Archive:
    """A `.zip` or `.tar.gz`, or a folder of the same files.

    Args:
        path: The archive or folder; with `content`, only its name in messages.
        content: Bytes of a zip that is inside another archive.
    """

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        self._content = content
        size = path.stat().st_size if content is None else len(content)
        self._max_bytes = min(MAX_BYTES, max(size, 1) * MAX_COMPRESSION_RATIO)

    def members(self, pattern: str) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of the members whose path matches a regular expression, sorted by path.

        Raises:
            BuildError: The archive cannot be read, or its content is too large.
        """
        wanted = re.compile(pattern)
        if self._content is None and self.path.is_dir():
            yield from self._of_folder(wanted)
            return
        try:
            yield from self._packed(wanted)
        except ARCHIVE_ERRORS as error:
            raise BuildError(f"{self.path} cannot be unpacked ({one_line(error, 150)}).") from error

    def _of_folder(self, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
        for path in sorted(self.path.rglob("*")):
            name = path.relative_to(self.path).as_posix()
            if path.is_file() and wanted.search(name):
                if leads_outside(path, self.path):
                    raise BuildError(f"{path} is a symbolic link out of the folder.")
                yield name, read_bytes(path)

    def _packed(self, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
        contents: dict[str, bytes] = {}
        total = count = 0
        source = self.path if self._content is None else io.BytesIO(self._content)
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as packed:
                self._count(len(packed.namelist()))
                for name in sorted({name for name in packed.namelist() if wanted.search(name)}):
                    with packed.open(name) as stream:
                        data = limited(stream, self._max_bytes - total, f"{self.path}: {name}")
                    total += len(data)
                    yield name, data
            return
        # As a stream: one pass, no seeks. Not with tarfile's own gzip, which accepts a truncated file.
        opened: Any = gzip.open if self.path.suffix in (".gz", ".tgz") else open
        with (
            opened(self.path, "rb") as unpacked,
            tarfile.open(
                fileobj=cast("Any", _Limited(unpacked, self._max_bytes, self.path)), mode="r|"
            ) as tar,
        ):
            for member in tar:
                count += 1
                self._count(count)
                name = re.sub(r"^(\./)+", "", member.name)
                if member.isfile() and wanted.search(name):
                    inside = tar.extractfile(member)
                    contents[name] = inside.read() if inside is not None else b""
        yield from sorted(contents.items())

    def _count(self, members: int) -> None:
        if members > MAX_MEMBERS:
            raise BuildError(f"{self.path} holds more than {MAX_MEMBERS:,} files; it is refused.")


class _Limited:
    """A stream that fails after a maximum number of bytes."""

    def __init__(self, stream: Readable, max_bytes: int, path: Path) -> None:
        self._stream, self._remaining, self._max_bytes, self._path = stream, max_bytes, max_bytes, path

    def read(self, size: int) -> bytes:
        """Return bytes of the stream."""
        data = self._stream.read(min(size, self._remaining + 1))
        self._remaining -= len(data)
        if self._remaining < 0:
            raise BuildError(f"{self._path} unpacks to more than {self._max_bytes:,} bytes; it is refused.")
        return data


def limited(stream: Readable, max_bytes: int, what: str) -> bytes:
    """Return all bytes of a stream.

    Raises:
        BuildError: There are more than allowed.
    """
    parts, total = [], 0
    while part := stream.read(_CHUNK_BYTES):
        total += len(part)
        if total > max_bytes:
            raise BuildError(f"{what} has more than {max_bytes:,} bytes; it is refused.")
        parts.append(part)
    return b"".join(parts)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; `.gz` files are unpacked.

    Raises:
        BuildError: The file cannot be read, or is too large.
    """
    size = path.stat().st_size
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as stream:
                return limited(stream, min(MAX_BYTES, max(size, 1) * MAX_COMPRESSION_RATIO), str(path))
        with path.open("rb") as stream:
            return limited(stream, MAX_BYTES, str(path))
    except ARCHIVE_ERRORS as error:
        raise BuildError(f"{path} cannot be read ({one_line(error, 150)}).") from error


def decode(data: bytes, what: str) -> str:
    """Return UTF-8 text without its byte order mark.

    Raises:
        BuildError: The bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BuildError(f"{what} is not valid UTF-8 at byte {error.start + 1}.") from None


def read_text(path: Path) -> str:
    """Return the text of a file; `.gz` files are unpacked.

    Raises:
        BuildError: The file cannot be read, is too large, or is not UTF-8.
    """
    return decode(read_bytes(path), str(path))


def parse_json(path: Path, kind: type) -> Any:
    """Return the content of a JSON file.

    Args:
        path: The file.
        kind: Required type of the content, `dict` or `list`.

    Raises:
        BuildError: The file is not JSON, or its content has another type.
    """
    content = json_of(read_text(path), str(path))
    if not isinstance(content, kind):
        unexpected(str(path), f"a JSON {'object' if kind is dict else 'list'}", content)
    return content


def json_of(text: str, what: str) -> Any:
    """Return the content of a JSON text.

    Args:
        text: The text.
        what: Name of the text in errors.

    Raises:
        BuildError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BuildError(f"{what} is not valid JSON ({one_line(error, 150)}).") from None


def unexpected(what: str, expected: str, content: Any) -> NoReturn:
    """Raise the error for content of an unexpected type.

    Raises:
        BuildError: Always.
    """
    raise BuildError(f"{what}: expected {expected}, got {repr(content)[:60]}.")


def parse_csv(text: str, what: str, columns: tuple[str, ...], delimiter: str = ",") -> list[dict[str, str]]:
    """Return the rows of a table with a header.

    Args:
        text: The table.
        what: Name of the table in errors.
        columns: Required columns.
        delimiter: Separator of cells.

    Raises:
        BuildError: A column is missing, or a row and the header differ in their number of cells.
    """
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[dict[str, str]] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        if missing := [name for name in columns if name not in header]:
            raise BuildError(f"{what}: no column {', '.join(missing)}; got {', '.join(header)[:200]}.")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise BuildError(
                    f"{what}:{reader.line_num}: {len(cells)} cells; the header has {len(header)}."
                )
            rows.append(dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise BuildError(f"{what}:{reader.line_num}: {one_line(error, 150)}.") from None
    return rows


class _NoDoctype(ET.TreeBuilder):
    """Builds a tree, and rejects document types, which could declare entities."""

    def doctype(self, *_: str | None) -> None:
        """Reject the declaration."""
        raise BuildError("declares a document type, which could hold entities")


def parse_xml(data: bytes, what: str) -> ET.Element:
    """Return the root of an XML document without a document type, which therefore declares no entities.

    Raises:
        BuildError: The document is not XML, or has a document type.
    """
    parser = ET.XMLParser(target=_NoDoctype())  # noqa: S314 -- without declarations nothing expands
    try:
        parser.feed(data)
        root: ET.Element = parser.close()
    except BuildError as error:
        raise BuildError(f"{what} {error}; it is refused.") from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise BuildError(f"{what} is not valid XML ({one_line(error, 150)}).") from None
    return root


def in_one_line(text: str | None) -> str:
    """Return a text without line breaks and repeated blanks; None counts as empty."""
    return " ".join((text or "").split())


def clean(text: str | None) -> str:
    """Return a text with its paragraphs, each line without outer or repeated blanks; None counts as empty."""
    lines = (in_one_line(line) for line in (text or "").replace("\r\n", "\n").split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
