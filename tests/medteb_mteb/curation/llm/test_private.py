"""Texts that were not anonymised are not sent."""

from __future__ import annotations

import pytest

from medteb_mteb.curation.files.records import BuildError, Text
from medteb_mteb.curation.llm import refuse_private

DONE, PRIVATE = Text("a", "好", anonymised="medteb-1"), Text("b", "好")


@pytest.mark.parametrize("texts", [{}, {"queries": []}, {"queries": [DONE], "documents": [DONE, DONE]}])
def test_anonymised_texts_may_be_sent(texts):
    refuse_private(texts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"documents": [PRIVATE, PRIVATE]}, r"^2 of 2 documents have not been anonymised"),
        (
            {"queries": [DONE, PRIVATE], "documents": [DONE]},
            r"^1 of 2 queries and 0 of 1 documents have not been anonymised.*--already-anonymous",
        ),
        ({"queries": [], "documents": [DONE, PRIVATE]}, r"^0 of 0 queries and 1 of 2 documents have not"),
        ({"queries": [Text("c", "好", anonymised="")]}, r"^1 of 1 queries have not"),
    ],
)
def test_private_texts_are_refused_by_kind(texts, message):
    with pytest.raises(BuildError, match=message):
        refuse_private(texts)
