"""Changes of an input: of the values of its JSON, or of its bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

_NUMBERS = [
    -1, 0, 1, 2, 3, 7, 8, 16, 31, 32, 63, 64, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 2**24, 2**31 - 1,
    2**31,
    -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e-45, 1e30, 1e300,
    float("nan"),
    float("inf"), -float("inf"),
]  # fmt: skip
_TEXTS = [
    "", " ", "x", ".", "..", "../x", "/etc/passwd", "a/../../b", "a\\b", "\x00", "\n", "\u2028", "\ud800",
    "\udfff",
    "'", '"', "文", "é", "é", "😀", "float32", "0", "-1", "1e999", "true", "null", "x" * 300, "文" * 5000,
    "$(x)", "%s%n",
    "000002", "d1",
]  # fmt: skip
_OTHER_VALUES: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
    [1],
    {"absent": 1},
    [{}],
    ["x"] * 3,
]

_TOKENS = (
    b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\r",
    b"\t", b" ",
    b"{", b"}", b"[", b"]", b'"', b"'", b",", b":", b"\\", b"\\ud800", b"-", b"0", b"1", b"9" * 5000,
    b"1e999", b"NaN",
    b"[" * 3000, b'{"a":' * 3000, b"null", b"\x7fELF", b"PK\x03\x04", b"\x93NUMPY", b"ARROW1",
)  # fmt: skip


def mutated(
    data: bytes,
    values: random.Random,
    pool: Sequence[bytes],
    *,
    named: bool = False,
    words: Sequence[bytes] = (),
) -> bytes:
    """Return a changed input.

    Args:
        data: The input.
        values: Where chance comes from.
        pool: Other inputs, parts of which may be put in.
        named: The first line is kept.
        words: Bytes that such inputs are made of.
    """
    head, body = b"", data
    if named:
        first, _, body = data.partition(b"\n")
        head = first + b"\n"
    for _ in range(1 + min(int(values.expovariate(1.5)), 8)):
        changed = None
        if values.random() < 0.75:
            changed = _json(body, values)
        if changed is None:
            other = values.choice(pool)
            changed = _bytes(body, values, other.partition(b"\n")[2] if named else other, words)
        body = changed
    return head + body


# -- JSON --


def _json(body: bytes, values: random.Random) -> bytes | None:
    """Change a value of a JSON text, or of one of its lines; return `None` if it is not JSON."""
    if body[:1] not in (b"{", b"["):
        return None
    try:
        return _dumped(_changed(json.loads(body), values))
    except (ValueError, RecursionError):
        lines = body.splitlines(keepends=True)
    at = values.randrange(len(lines))
    try:
        lines[at] = _dumped(_changed(json.loads(lines[at]), values)) + b"\n"
    except (ValueError, RecursionError):
        return None
    return b"".join(lines)


def _dumped(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=True).encode()


def _places(part: Any) -> list[tuple[Any, Any]]:
    """Every holder with each of its keys."""
    places: list[tuple[Any, Any]] = []
    pending = [part]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            places.append((holder, key))
            if isinstance(holder[key], dict | list):
                pending.append(holder[key])
    return places


def _changed(content: Any, values: random.Random) -> Any:
    places = _places(content) if isinstance(content, dict | list) else []
    if not places or values.random() < 0.01:
        return _value(content, values)
    holder, key = values.choice(places)
    how = values.random()
    if how < 0.15:
        del holder[key]
    elif how < 0.25 and isinstance(holder, dict):
        holder[values.choice([str(_value("", values)), str(values.choice(places)[1])])] = holder[key]
    elif how < 0.25:
        holder.insert(key, holder[key])
    elif how < 0.35:  # a value from elsewhere
        other, place = values.choice(places)
        try:
            holder[key] = other[place]
            json.dumps(content)  # not within itself
        except (KeyError, IndexError, ValueError, RecursionError):
            holder[key] = None
    else:
        holder[key] = _value(holder[key], values)
    return content


def _value(before: Any, values: random.Random) -> Any:
    if isinstance(before, bool) or before is None:
        return values.choice([True, False, None, 0, 1, "x"])
    if isinstance(before, int | float) and values.random() < 0.6:
        step = values.choice([1, -1, 2, 64, -64, 2**32, -(2**32), values.randrange(4096)])
        return values.choice(
            [before + step, before * 2, -before, before / 2 if abs(before) < 1e300 else 0, str(before)]
        )
    if isinstance(before, str) and values.random() < 0.6:
        at = values.randrange(len(before) + 1)
        return before[:at] + values.choice([*_TEXTS, before]) + before[at + values.randrange(3) :]
    return values.choice([values.choice(_NUMBERS), values.choice(_TEXTS), values.choice(_OTHER_VALUES)])


# -- bytes --


def _bytes(body: bytes, values: random.Random, other: bytes, words: Sequence[bytes]) -> bytes:
    at = _place(body, values)
    return values.choice(_BYTE_CHANGES)(body, at, values, other, words)


def _place(body: bytes, values: random.Random) -> int:
    """A place; often near the beginning, where headers are."""
    most = len(body)
    if values.random() < 0.4:
        most = min(most, 200)
    return values.randrange(most + 1)


def _flip(body: bytes, at: int, values: random.Random, _other: bytes, _words: Sequence[bytes]) -> bytes:
    changed = bytearray(body or b"\x00")
    changed[at % len(changed)] ^= 1 << values.randrange(8)
    return bytes(changed)


def _set(body: bytes, at: int, values: random.Random, _other: bytes, _words: Sequence[bytes]) -> bytes:
    changed = bytearray(body or b"\x00")
    changed[at % len(changed)] = values.choice([0, 1, 0x7F, 0x80, 0xFF, values.randrange(256)])
    return bytes(changed)


def _number(body: bytes, at: int, values: random.Random, _other: bytes, _words: Sequence[bytes]) -> bytes:
    number = int(values.choice([n for n in _NUMBERS if isinstance(n, int)]))
    size = values.choice([2, 4, 8])
    return (
        body[:at] + (number % 256**size).to_bytes(size, values.choice(["little", "big"])) + body[at + size :]
    )


def _digits(body: bytes, at: int, values: random.Random, _other: bytes, _words: Sequence[bytes]) -> bytes:
    """Replace the digits that come next."""
    start = next((place for place in range(at, min(len(body), at + 300)) if 48 <= body[place] < 58), None)
    if start is None:
        return _insert(body, at, values, _other, _words)
    end = start
    while end < len(body) and 48 <= body[end] < 58:
        end += 1
    return body[:start] + str(values.choice(_NUMBERS)).encode() + body[end:]


def _insert(body: bytes, at: int, values: random.Random, _other: bytes, words: Sequence[bytes]) -> bytes:
    word = values.choice(words) if words and values.random() < 0.7 else values.choice(_TOKENS)
    return body[:at] + word + body[at + values.choice([0, 0, len(word)]) :]


def _remove(body: bytes, at: int, values: random.Random, _other: bytes, _words: Sequence[bytes]) -> bytes:
    return body[:at] + body[at + values.choice([1, 2, 8, 64, 1024]) :]


def _cut(body: bytes, at: int, _values: random.Random, _other: bytes, _words: Sequence[bytes]) -> bytes:
    return body[:at]


def _repeat(body: bytes, at: int, values: random.Random, _other: bytes, _words: Sequence[bytes]) -> bytes:
    size = values.choice([1, 4, 16, 64, 512])
    return body[:at] + body[at : at + size] * values.choice([2, 3, 100]) + body[at + size :]


def _splice(body: bytes, at: int, values: random.Random, other: bytes, _words: Sequence[bytes]) -> bytes:
    start = _place(other, values)
    stop = start + values.choice([1, 8, 64, 1024, len(other)])
    return body[:at] + other[start:stop] + body[at + values.choice([0, stop - start]) :]


_BYTE_CHANGES: list[Callable[[bytes, int, Any, bytes, Sequence[bytes]], bytes]] = [
    _flip, _set, _number, _digits, _insert, _remove, _cut, _repeat, _splice,
]  # fmt: skip
