"""Lines of text files, and JSON in them.

Text is UTF-8, with or without a byte order mark, GB18030, which is detected, or UTF-16 with its mark; `.gz`
files are read too.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import math
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import one_line, regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Bytes from which the encoding of a file is detected.
SAMPLE_BYTES = 2**20


def _opened(path: Path) -> Any:
    return gzip.open(regular(path), "rb") if path.suffix.lower() == ".gz" else regular(path).open("rb")


def start_of(path: Path) -> str:
    """Return the first characters of a text file, without a mark."""
    with _opened(path) as stream:
        return str(stream.read(64).decode("utf-8", "ignore").removeprefix("\ufeff"))


def text_lines(path: Path) -> Iterator[tuple[int, str | MarError]]:
    """Yield the lines of a text file with their numbers; an error for a line in another encoding."""
    with _opened(path) as stream:
        encoding = _encoding(stream.read(SAMPLE_BYTES))
        stream.seek(0)
        if encoding == "utf-16":  # Excel's "Unicode text"; its line breaks are two bytes
            try:
                yield from enumerate(io.TextIOWrapper(stream, encoding, newline="\n"), 1)
            except UnicodeDecodeError:
                yield 1, MarError(f"{path}: not UTF-16, as its first bytes say. Save it as UTF-8.")
            return
        for number, line in enumerate(stream, 1):
            try:
                yield number, line.decode(encoding).removeprefix("\ufeff" if number == 1 else "")
            except UnicodeDecodeError as error:
                yield (
                    number,
                    MarError(
                        f"{path}:{number}: not UTF-8 at byte {error.start + 1} of the line. Save it as UTF-8."
                    ),
                )


def _encoding(sample: bytes) -> str:
    """Return `gb18030` if no line beyond ASCII is UTF-8 and all are GB18030, else what its mark says."""
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    lines = sample.split(b"\n")
    whole = lines[:-1] if len(sample) == SAMPLE_BYTES else lines
    beyond = [line for line in whole if not line.isascii()]
    is_gb = bool(beyond) and all(_decodes(line, "gb18030") and not _decodes(line, "utf-8") for line in beyond)
    return "gb18030" if is_gb else "utf-8"


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def parsed_json(place: str, text: str) -> Any:
    """Return the content of JSON, or an error."""
    try:
        content = _DECODER.decode(text.strip())
        if "\\ud" in text or "\\uD" in text:  # half of a surrogate pair is not text
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        return MarError(f"{place}: not a JSON object; it is nested too deeply.")
    except UnicodeEncodeError:
        return MarError(f"{place}: a text holds half of a surrogate pair. Correct it.")
    except ValueError as error:
        return MarError(f"{place}: not a JSON object ({one_line(error)}).")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys do not repeat; JSON readers would keep the last of equal ones."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
