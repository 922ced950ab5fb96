"""Reading text and JSON files that may be damaged or come from an untrusted source."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "JsonError",
    "NotUtf8Error",
    "counted",
    "one_line",
    "printable",
    "read_json",
    "read_record",
    "repeated",
    "utf8_lines",
]

#: Characters that control a terminal, and those that change the order of others.
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class JsonError(ValueError):
    """A file that is not JSON; the message says why, in one line."""


class NotUtf8Error(ValueError):
    """A text file in another encoding; the message names the line."""


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        JsonError: The file is not JSON, is nested too deeply, or holds half of a surrogate pair, which cannot
            be written to a file.
        OSError: The file cannot be read.
    """
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


def utf8_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, each with its number, without a byte order mark and line ends.

    Raises:
        NotUtf8Error: A line is not UTF-8.
        OSError: The file cannot be read.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise NotUtf8Error(
                    f"{path}:{number}: not UTF-8 ({error.reason} at byte {error.start + 1}). Convert it."
                ) from error
            yield number, text.rstrip("\r\n")


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice, such as a column of a table; `None` if each occurs once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def one_line(error: BaseException, max_characters: int = 300) -> str:
    """Return the message of an error in one line; some libraries use several."""
    return " ".join(str(error).split())[:max_characters]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun for a message: `1 pair`, `1,200 pairs`.

    Args:
        number: The number.
        noun: The noun in the singular.
        plural: Its plural; default: the singular with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    r"""Return a text for a terminal: characters that control it are escaped as in Python (`\x1b`)."""
    return _CONTROL_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], text)
