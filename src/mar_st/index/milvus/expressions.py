"""Conditions in Milvus' language, kept separate from the values that users gave.

If the server accepts templates (Milvus 2.5 and later), a value never becomes part of an expression's text: it
is named, `id in {v0}`, and sent separately. Milvus Lite and older servers have no templates; for them it is
written as a literal, in which every character that could end it is escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mar_st.index.errors import IndexingError
from mar_st.index.filters import BOUND_SIGNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mar_st.index.filters import FieldCondition, Filter, Scalar

#: The escapes that all parsers of Milvus know. Other characters stand for themselves.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


@dataclass
class Expression:
    """An expression and its values.

    Args:
        templates: Whether the server supports templates.

    Attributes:
        text: The expression; without any values if the server supports templates.
        values: Values of the names in the text.
    """

    templates: bool
    text: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of pymilvus' `search`, `query` and `delete`."""
        return {"filter": self.text, **({"filter_params": self.values} if self.values else {})}

    def value(self, given: Scalar | Sequence[Scalar]) -> str:
        """Return what represents one or several values in the text."""
        if not self.templates:
            return literal(given)
        name = f"v{len(self.values)}"
        self.values[name] = given if isinstance(given, str | int | float) else list(given)
        return f"{{{name}}}"


def of_ids(ids: Sequence[str], *, templates: bool) -> Expression:
    """Return the expression that holds for documents with these ids.

    Raises:
        IndexingError: An id is not valid Unicode.
    """
    try:
        "".join(ids).encode()
    except UnicodeEncodeError as error:
        raise IndexingError(f"An id is not valid Unicode ({error}).") from error
    expression = Expression(templates)
    expression.text = f"id in {expression.value(ids)}"
    return expression


def of_filter(where: Filter | None, fields: Sequence[str], *, templates: bool) -> Expression:
    """Return a typed filter as an expression; without a filter an empty one.

    Args:
        where: The filter.
        fields: Names of the metadata fields in the order of the collection.
        templates: Whether the server supports templates.
    """
    expression = Expression(templates)
    if where is not None:
        terms = (
            _term(expression, condition, f"metadata_{fields.index(condition.field)}")
            for condition in where.conditions
        )
        expression.text = " and ".join(f"({term})" for term in terms)
    return expression


def literal(given: Scalar | Sequence[Scalar]) -> str:
    """Return a value, or a list of values, as it is written in an expression."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, str):
        return f'"{given.translate(_ESCAPES)}"'
    if isinstance(given, int | float):
        return repr(given)
    return f"[{', '.join(map(literal, given))}]"


def _term(expression: Expression, condition: FieldCondition, field: str) -> str:
    if condition.any_of is not None:
        return f"{field} in {expression.value(condition.any_of)}"
    return " and ".join(
        f"{field} {BOUND_SIGNS[name]} {expression.value(value)}" for name, value in condition.bounds
    )
