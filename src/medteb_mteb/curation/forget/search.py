"""The proof: all bytes below some folders are searched for the texts, whatever the files are.

Searched are the bytes of each file, which also covers the free pages of SQLite and uncompressed columns of
Arrow; what gzip, bzip2, xz and zip hold; and the strings of Parquet and Arrow files. Texts are looked for in
UTF-8, GB18030 and UTF-16, escaped as in JSON, HTML, CSV and addresses.
"""

from __future__ import annotations

import bz2
import gzip
import html
import json
import lzma
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mar_st.files import LOCK, load_package, one_line
from medteb_mteb.curation.forget.files import WORK_FILE
from medteb_mteb.curation.forget.texts import PASSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from medteb_mteb.curation.forget.texts import Texts

#: Bytes that are searched at once.
CHUNK = 1 << 24
#: Compressed files by their first bytes.
_PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_ZIP, _PARQUET, _ARROW, _STREAM = b"PK\x03\x04", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_ZSTD = b"\x28\xb5\x2f\xfd"
_DAMAGED = (OSError, EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
#: Bytes around a whole value: control characters, quotes, separators and the tags of a page.
_EDGE = re.compile(rb"[\x00-\x1f\"',;|<>\\]")


class Search:
    """A search of bytes for texts.

    Args:
        texts: The texts.
    """

    def __init__(self, texts: Texts) -> None:
        short = {text for text in texts.values if len(text.encode()) < PASSAGE_BYTES}
        self.short = sorted({form for text in short for form in _forms(text)})
        long = {*texts.passages, *(name for name in texts.ids if len(name.encode()) >= PASSAGE_BYTES)}
        self.long = sorted({form for text in long for form in _forms(text)})
        self.overlap = max(map(len, [*self.short, *self.long]), default=0) + 2
        self._search = load_package("ahocorasick_rs", extra="build").BytesAhoCorasick(self.long + self.short)

    def found(self, chunk: bytes) -> bool:
        """Return True if some bytes hold a passage, or a short text as a whole value."""
        for number, start, end in self._search.find_matches_as_indexes(chunk, overlapping=True):
            before, after = chunk[max(0, start - 2) : start].rstrip(b"\0"), chunk[end : end + 2].lstrip(b"\0")
            escaped = before in (b"\\n", b"\\t")
            edges = (not before or escaped or _EDGE.match(before[-1:])) and (
                not after or _EDGE.match(after[:1])
            )
            if number < len(self.long) or edges:
                return True
        return False

    def found_in(self, stream: Any) -> bool:
        """Return True if a binary stream holds one of the texts."""
        tail = b""
        while chunk := stream.read(CHUNK):
            if self.found(tail + chunk):
                return True
            tail = (tail + chunk)[-self.overlap :]
        return False


def _forms(text: str) -> Iterator[bytes]:
    """Yield a text as the bytes of the encodings and escapes that it may be written in."""
    escaped = json.dumps(text)[1:-1]
    upper = re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match[0][2:].upper(), escaped)
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    quoted = text.replace('"', '""')
    page = html.escape(text)
    templates = page.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    for form in (text, plain, escaped, upper, quoted, page, templates, quote(text)):
        yield form.encode("utf-8", "surrogatepass")
    for encoding in ("gb18030", "utf-16-le", "utf-16-be"):
        yield text.encode(encoding, "replace")


def leftovers(roots: Iterable[Path], texts: Texts) -> dict[str, str]:
    """Return the files that still hold one of the texts, or cannot be searched, each with the reason."""
    search, found = Search(texts), dict[str, str]()
    for root in roots:
        for folder, _, names in os.walk(root):
            for path in (Path(folder, name) for name in sorted(names) if name not in (WORK_FILE, LOCK)):
                if path.is_file() and not path.is_symlink() and (why := _why(path, search)):
                    found[str(path)] = why
    return found


def _why(path: Path, search: Search) -> str:
    """Return why a file is listed; empty if it holds none of the texts."""
    with path.open("rb") as stream:
        if search.found_in(stream):
            return "holds a text"
        stream.seek(0)
        head = stream.read(8)
    try:
        return "holds a text, compressed" if _packed(path, head, search) else ""
    except _DAMAGED as error:
        return f"cannot be searched ({one_line(error, 100)})"


def _packed(path: Path, head: bytes, search: Search) -> bool:
    if head.startswith(_ZSTD):
        raise ValueError("it is compressed by Zstandard; decompress it")
    for magic, opened in _PACKED.items():
        if head.startswith(magic):
            with opened(path, "rb") as stream:
                return search.found_in(stream)
    if head.startswith(_ZIP):
        with zipfile.ZipFile(path) as archive:
            return any(search.found_in(archive.open(one)) for one in archive.infolist())
    if head.startswith((_PARQUET, _ARROW)) or (head.startswith(_STREAM) and path.suffix == ".arrow"):
        return any(
            search.found(json.dumps(rows, ensure_ascii=False, default=str).encode("utf-8", "replace"))
            for rows in _rows(path, head)
        )
    return False


def _rows(path: Path, head: bytes) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a Parquet or Arrow file, a batch at a time, without its columns of numbers."""
    from pyarrow import ipc, memory_map  # lazy: pyarrow
    from pyarrow.dataset import dataset  # lazy: pyarrow

    if head.startswith(_STREAM):
        with memory_map(str(path)) as source:
            data = dataset(ipc.open_stream(source).read_all())
    else:
        data = dataset(path, format="parquet" if head.startswith(_PARQUET) else "ipc")
    names = [one.name for one in data.schema if "string" in str(one.type)]
    for batch in data.to_batches(columns=names, batch_size=4096):
        yield batch.to_pylist()
