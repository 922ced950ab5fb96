"""Filters on the metadata of documents: equality, any of, ranges; all conditions must hold.

A filter is written as a mapping, `{"department": ["心内科", "儿科"], "date": {"gte": "2024-01-01"}}`, or
as a line, `department=心内科|儿科,date>=2024-01-01`. Strings are compared by their characters, so dates
should be written as ISO 8601. A document that lacks the field never passes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mar_st.index.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Iterable

Scalar: TypeAlias = str | int | float | bool
Bound: TypeAlias = Literal["gt", "gte", "lt", "lte"]

#: Type of a metadata field.
FieldType: TypeAlias = Literal["string", "integer", "number", "boolean"]

BOUND_SIGNS: dict[Bound, str] = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}

#: Range of the integers of a field.
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1

#: Maximum number of conditions of a filter, and of values of one condition.
MAX_CONDITIONS, MAX_VALUES = 64, 10_000

#: Maximum characters of the name of a field, and of one that is compared with the names of the fields.
MAX_NAME_CHARACTERS, _MAX_COMPARED_CHARACTERS = 1000, 100

#: Maximum characters of a name or value in a message.
_MAX_SHOWN_CHARACTERS = 40

_VALUE_FORMS = 'a value, a list of values (any of them), or a range such as {"gte": 2020, "lt": 2024}'
_CONDITION = re.compile(r"\s*(?P<field>[^=<>!|]+?)\s*(?P<sign>>=|<=|=|>|<)\s*(?P<value>[^=<>].*|)", re.DOTALL)


class _TextValue(str):
    """A value from a line of text: its type is that of the field."""

    __slots__ = ()


@dataclass(frozen=True)
class FieldCondition:
    """Condition on the value of one metadata field.

    Attributes:
        field: Name of the metadata field.
        any_of: Allowed values; `None` for a range.
        bounds: Bounds of the value.
    """

    field: str
    any_of: tuple[Scalar, ...] | None = None
    bounds: tuple[tuple[Bound, Scalar], ...] = ()


@dataclass(frozen=True)
class Filter:
    """Conditions that must all hold; equal filters are equal and hashable.

    Attributes:
        conditions: The conditions, sorted by field.
    """

    conditions: tuple[FieldCondition, ...]

    @property
    def impossible(self) -> bool:
        """Return True if no document can pass because a condition allows no value of the field's type."""
        return any(condition.any_of == () for condition in self.conditions)

    def typed(self, fields: Mapping[str, FieldType]) -> Filter:
        """Return the same filter with values of the types of the fields.

        Values of an integer field become integers: `> 2.5` is `> 2`, and a value that is not a 64-bit integer
        is dropped. Values of a number field become floats, rounded like those of the documents.

        Args:
            fields: Names and types of the existing metadata fields.

        Raises:
            FilterError: The field does not exist, or a value does not fit its type.
        """
        return Filter(tuple(_typed(condition, fields) for condition in self.conditions))


def parse_filter(where: Mapping[str, Any] | str | Filter | None) -> Filter | None:
    """Read a filter.

    Args:
        where: A mapping, a line `field=value,field>=value` (or the mapping as JSON), a filter, or nothing.

    Returns:
        The filter; `None` without conditions.

    Raises:
        FilterError: The filter cannot be read.
    """
    if where is None or isinstance(where, Filter):
        return where
    if isinstance(where, str):
        if where.lstrip().startswith("{"):
            try:
                where = json.loads(where)
            except (ValueError, RecursionError) as error:
                raise FilterError(f"The filter starts with {{ but is not valid JSON ({error}).") from error
        else:
            return _from_text(where)
    if not isinstance(where, Mapping):
        raise FilterError(f"A filter is a mapping of fields to {_VALUE_FORMS}; got {type(where).__name__}.")
    if len(where) > MAX_CONDITIONS:
        raise FilterError(f"A filter has at most {MAX_CONDITIONS} conditions; this one has {len(where)}.")
    conditions = [_condition(field, wanted) for field, wanted in where.items()]
    return _filter_of(conditions)


def _filter_of(conditions: Iterable[FieldCondition]) -> Filter | None:
    ordered = tuple(sorted(conditions, key=lambda condition: condition.field))
    return Filter(ordered) if ordered else None


def _condition(field: Any, wanted: Any) -> FieldCondition:
    if not isinstance(field, str) or not field:
        raise FilterError(f"Fields of a filter must be strings that are not empty; got {_shown(field)}.")
    _check_name(field)
    if isinstance(wanted, Mapping):
        unknown = [name for name in wanted if name not in BOUND_SIGNS]
        if unknown or not wanted:
            raise FilterError(
                f"The range of {_shown(field)} has {', '.join(map(_shown, unknown[:3])) or 'nothing'}; "
                f"it takes {', '.join(BOUND_SIGNS)}."
            )
        return FieldCondition(
            field, bounds=tuple((name, _value(field, wanted[name])) for name in BOUND_SIGNS if name in wanted)
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes):
        if not wanted or len(wanted) > MAX_VALUES:
            raise FilterError(f"{_shown(field)} lists {len(wanted)} values; 1 to {MAX_VALUES} are allowed.")
        values = [_value(field, value) for value in wanted]
        # True equals 1, but does not fit the same fields.
        return FieldCondition(field, any_of=tuple({(type(one), one): one for one in values}.values()))
    return FieldCondition(field, any_of=(_value(field, wanted),))


def _check_name(field: str) -> None:
    if len(field) > MAX_NAME_CHARACTERS:
        raise FilterError(
            f"The name of the field {_shown(field)} has {len(field)} characters; at most "
            f"{MAX_NAME_CHARACTERS} are allowed."
        )


def _shown(given: Any) -> str:
    """Return a name or value for a message: cut, and only the type of what holds other values."""
    if isinstance(given, str):
        return repr(given[:_MAX_SHOWN_CHARACTERS]) + ("..." if len(given) > _MAX_SHOWN_CHARACTERS else "")
    if given is None or isinstance(given, bool | float):
        return repr(given)
    if isinstance(given, int):
        return str(given) if given.bit_length() <= 128 else "an integer of more than 128 bits"
    return f"a value of type {type(given).__name__}"


def _value(field: str, value: Any) -> Scalar:
    if isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise FilterError(
                f"{_shown(field)} is compared with a string that is not valid Unicode ({error})."
            ) from error
        return value
    if isinstance(value, int) and MIN_INTEGER <= value <= MAX_INTEGER:
        return value
    raise FilterError(f"{_shown(field)} is compared with {_shown(value)}; expected {_VALUE_FORMS}.")


def _from_text(line: str) -> Filter | None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise FilterError(f"The filter is not valid Unicode ({error}).") from error
    conditions: dict[str, FieldCondition] = {}
    for part in line.split(","):
        if not part.strip():
            continue
        match = _CONDITION.fullmatch(part)
        if not match or not match["value"].strip():
            raise FilterError(
                f"{_shown(part.strip())} is not a condition. Write field=value, field=one|other, "
                'field>=value, separated by commas, or JSON such as {"field": "a, b"}.'
            )
        field, sign, value = match["field"], match["sign"], match["value"].strip()
        _check_name(field)
        if sign == "=":
            if field in conditions:
                raise FilterError(
                    f"{_shown(field)} is named twice; for any of several values, write field=one|other."
                )
            values = (_TextValue(one.strip()) for one in value.split("|"))
            conditions[field] = FieldCondition(
                field, any_of=tuple(dict.fromkeys(one for one in values if one))
            )
            continue
        earlier = conditions.get(field, FieldCondition(field))
        name = next(name for name, written in BOUND_SIGNS.items() if written == sign)
        if earlier.any_of is not None or name in dict(earlier.bounds):
            raise FilterError(f"{_shown(field)} is named twice in {_shown(line)}.")
        conditions[field] = FieldCondition(field, bounds=(*earlier.bounds, (name, _TextValue(value))))
    return _filter_of(conditions.values())


def _typed(condition: FieldCondition, fields: Mapping[str, FieldType]) -> FieldCondition:
    field = condition.field
    if field not in fields:
        # The time grows with the length of the name.
        near = get_close_matches(field, fields, n=1) if len(field) <= _MAX_COMPARED_CHARACTERS else ()
        hint = f" Did you mean {near[0]!r}?" if near else ""
        known = f"It has {', '.join(sorted(fields))}." if fields else "Its documents have no metadata."
        raise FilterError(f"The index has no metadata field {_shown(field)}.{hint} {known}")
    kind = fields[field]
    if condition.any_of is not None:
        values = [_converted(kind, field, value) for value in condition.any_of]
        return FieldCondition(field, any_of=tuple(_integers(values) if kind == "integer" else values))
    if kind == "boolean":
        raise FilterError(f"{_shown(field)} is boolean and cannot be filtered by a range.")
    bounds = tuple((name, _converted(kind, field, value)) for name, value in condition.bounds)
    return _integer_range(field, bounds) if kind == "integer" else FieldCondition(field, bounds=bounds)


def _integers(values: Iterable[Scalar]) -> list[Scalar]:
    """Return the numbers that are whole and fit a 64-bit integer, as integers."""
    whole = (int(value) for value in values if not isinstance(value, str) and value == int(value))
    return [value for value in whole if MIN_INTEGER <= value <= MAX_INTEGER]


def _integer_range(field: str, bounds: Iterable[tuple[Bound, Scalar]]) -> FieldCondition:
    """Return a range of integers with integer bounds; it has no values if no 64-bit integer is in it."""
    whole_bounds: list[tuple[Bound, Scalar]] = []
    for name, value in bounds:
        # For an integer, > 2.5 is > 2, and >= 2.5 is >= 3.
        number = math.floor(value) if name in ("gt", "lte") else math.ceil(value)  # type: ignore[arg-type]
        least, largest = MIN_INTEGER, MAX_INTEGER
        if name == "gt":
            name, number = "gte", number + 1
        elif name == "lt":
            name, number = "lte", number - 1
        if (name == "gte" and number > largest) or (name == "lte" and number < least):
            return FieldCondition(field, any_of=())
        whole_bounds.append((name, min(max(number, least), largest)))
    return FieldCondition(field, bounds=tuple(whole_bounds))


def _converted(kind: FieldType, field: str, value: Scalar) -> Scalar:
    """Return a value in the type of its field."""
    if isinstance(value, _TextValue):
        read = _parsed(kind, str(value))
        if read is not None:
            return read + 0.0 if isinstance(read, float) else read
    elif kind == "string":
        if isinstance(value, str):
            return value
    elif kind == "boolean":
        if isinstance(value, bool):
            return value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) + 0.0 if kind == "number" else value  # 0 and not -0
    raise FilterError(
        f"{_shown(field)} is compared with {_shown(str(value))}, but the field is of type {kind}."
    )


def _parsed(kind: FieldType, text: str) -> Scalar | None:
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower())
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if kind == "integer":
        try:
            return int(text)
        except ValueError:
            pass
    return number
