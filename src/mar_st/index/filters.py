"""Filters on the metadata of documents: equality, any of, ranges; all conditions must hold.

A filter is written as a mapping, `{"department": ["心内科", "儿科"], "date": {"gte": "2024-01-01"}}`, or
as a line, `department=心内科|儿科,date>=2024-01-01`. Strings are compared by their characters, so dates
should be written as ISO 8601; numbers as 64-bit floats. A document that lacks the field never passes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mar_st.errors import MarError

if TYPE_CHECKING:
    from mar_st.data.corpus import FieldType

Scalar: TypeAlias = str | int | float | bool
Bound: TypeAlias = Literal["gt", "gte", "lt", "lte"]

BOUND_SIGNS: dict[Bound, str] = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}

#: Maximum number of conditions of a filter, of values of one condition, and of characters of a field's name.
MAX_CONDITIONS, MAX_VALUES, _MAX_NAME = 64, 10_000, 1000

_FORMS = 'a value, a list of values (any of them), or a range such as {"gte": 2020, "lt": 2024}'
_CONDITION = re.compile(r"\s*(?P<field>[^=<>!|]+?)\s*(?P<sign>>=|<=|=|>|<)\s*(?P<value>[^=<>].*)", re.DOTALL)


class FilterError(MarError):
    """A filter that does not fit; the message says what was expected."""


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

    def typed(self, fields: Mapping[str, FieldType]) -> Filter:
        """Return the same filter with values of the types of the fields.

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
        try:
            where = json.loads(where) if where.lstrip().startswith("{") else _mapping_of(where)
        except (ValueError, RecursionError) as error:
            raise FilterError(f"The filter cannot be read: {error}") from error
    if not isinstance(where, Mapping) or len(where) > MAX_CONDITIONS:
        raise FilterError(f"A filter is a mapping of at most {MAX_CONDITIONS} fields to {_FORMS}.")
    return (
        Filter(tuple(_condition(field, where[field]) for field in sorted(where, key=str))) if where else None
    )


def _condition(field: Any, wanted: Any) -> FieldCondition:
    if not isinstance(field, str) or not 0 < len(field) <= _MAX_NAME:
        raise FilterError(
            f"Fields of a filter are strings of 1 to {_MAX_NAME} characters; got {_shown(field)}."
        )
    if isinstance(wanted, Mapping):
        unknown = [name for name in wanted if name not in BOUND_SIGNS]
        if unknown or not wanted:
            raise FilterError(
                f"The range of {_shown(field)} has {', '.join(map(_shown, unknown[:3])) or 'nothing'}; "
                f"it takes {', '.join(BOUND_SIGNS)}."
            )
        bounds = tuple((name, _value(field, wanted[name])) for name in BOUND_SIGNS if name in wanted)
        return FieldCondition(field, bounds=bounds)
    values = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes) else [wanted]
    if not 0 < len(values) <= MAX_VALUES:
        raise FilterError(f"{_shown(field)} lists {len(values)} values; 1 to {MAX_VALUES} are allowed.")
    # True equals 1, but does not fit the same fields.
    distinct = {(type(one), one): one for one in (_value(field, value) for value in values)}
    return FieldCondition(field, any_of=tuple(distinct.values()))


def _shown(given: Any) -> str:
    """Return a name or value for a message: cut, and only the type of what holds other values."""
    if isinstance(given, str):
        return repr(given[:40]) + ("..." if len(given) > 40 else "")
    return str(given)[:40] if isinstance(given, bool | float) else f"a value of type {type(given).__name__}"


def _value(field: str, value: Any) -> Scalar:
    try:
        if isinstance(value, bool) or (isinstance(value, int | float) and math.isfinite(value)):
            return value
        if isinstance(value, str):
            value.encode()
            return value
    except (UnicodeEncodeError, OverflowError):
        pass
    raise FilterError(f"{_shown(field)} is compared with {_shown(value)}; expected {_FORMS}.")


def _mapping_of(line: str) -> dict[str, Any]:
    """Return the mapping of a filter that is written as a line."""
    where: dict[str, Any] = {}
    names = {sign: name for name, sign in BOUND_SIGNS.items()}
    for part in filter(str.strip, line.split(",")):
        match = _CONDITION.fullmatch(part)
        if not match:
            raise FilterError(
                f"{_shown(part.strip())} is not a condition. Write field=value, field=one|other, "
                'field>=value, separated by commas, or JSON such as {"field": "a, b"}.'
            )
        field, sign, value = match["field"], match["sign"], match["value"].strip()
        if sign == "=" and field not in where:
            where[field] = [one.strip() for one in value.split("|") if one.strip()]
        elif (
            sign != "=" and isinstance(where.setdefault(field, {}), dict) and names[sign] not in where[field]
        ):
            where[field][names[sign]] = value
        else:
            raise FilterError(f"{_shown(field)} is named twice; for any of several values, write field=a|b.")
    return where


def _typed(condition: FieldCondition, fields: Mapping[str, FieldType]) -> FieldCondition:
    field = condition.field
    if field not in fields:
        near = get_close_matches(field[:100], fields, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        known = f"It has {', '.join(sorted(fields))}." if fields else "Its documents have no metadata."
        raise FilterError(f"The index has no metadata field {_shown(field)}.{hint} {known}")
    kind = fields[field]
    if condition.any_of is not None:
        return FieldCondition(field, any_of=tuple(_converted(kind, field, one) for one in condition.any_of))
    if kind == "boolean":
        raise FilterError(f"{_shown(field)} is boolean and cannot be filtered by a range.")
    bounds = tuple((name, _converted(kind, field, value)) for name, value in condition.bounds)
    return FieldCondition(field, bounds=bounds)


def _converted(kind: FieldType, field: str, value: Scalar) -> Scalar:
    """Return a value in the type of its field; strings are read as numbers and booleans."""
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "boolean":
        value = {"true": True, "false": False}.get(
            str(value).lower() if isinstance(value, str) else "", value
        )
        if isinstance(value, bool):
            return value
    if kind == "number" and not isinstance(value, bool):
        try:
            number = float(value) + 0.0  # 0 and not -0
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    raise FilterError(f"{_shown(field)} is compared with {_shown(value)}, but the field is of type {kind}.")
