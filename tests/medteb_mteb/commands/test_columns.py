"""The option that names columns."""

from __future__ import annotations

import pytest

from medteb_mteb.commands.columns import parse_columns
from medteb_mteb.commands.errors import UserError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        (["text=question", "id=_id"], {"text": "question", "id": "_id"}),
        (["text=a=b"], {"text": "a=b"}),  # a column may be called so
        (["text=a", "text=b"], {"text": "b"}),
    ],
)
def test_fields_have_the_columns_that_were_given(given, expected):
    assert parse_columns(given) == expected


@pytest.mark.parametrize("entry", ["text", "text=", "=question", ""])
def test_an_option_without_field_or_column_is_refused(entry):
    with pytest.raises(UserError, match=rf"takes FIELD=COLUMN.*; got {entry!r}"):
        parse_columns([entry])
