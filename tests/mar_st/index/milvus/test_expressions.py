"""Values that users give stay values, whatever characters they hold."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from milvus_lite.search.filter.tokens import TokenKind, tokenize
from milvus_lite.server_manager import server_manager_instance

from mar_st.encode import write_vectors
from mar_st.index import Index, IndexingError, Searcher, build_index, parse_filter
from mar_st.index.milvus.expressions import literal, of_filter, of_ids
from tests.mar_st.index.conftest import clustered

ATTACK = "zz'] or id not in ['q"

#: Every control character, every ASCII character but letters and digits, and line breaks of other systems.
ODD = [chr(code) for code in (*range(32), *range(127, 160))]
ODD += [chr(code) for code in range(32, 127) if not chr(code).isalnum()]
ODD += ["\u2028", "\u2029", "\ufeff", "\u200b", "\ud7ff", "\U0010ffff", "头", "𠀀"]

NAMES = [ATTACK, 'zz"] or id not in ["q', "{v0}", "\\", "\\'", '\\"', "a\\nb", "it's", 'say "no"', "%", "a b"]
NAMES += [f"x{character}y{number}" for number, character in enumerate(ODD)]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@given(TEXT)
@settings(max_examples=500, deadline=None)
def test_a_literal_is_read_as_one_string_of_the_same_characters(text):
    token, end = tokenize(literal(text))
    assert (token.kind, token.value, end.kind) == (TokenKind.STRING, text, TokenKind.EOF)


@given(st.lists(TEXT, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_ids_are_named_in_templates_and_quoted_in_literals(ids):
    made = of_ids(ids, templates=True)
    assert made.arguments == {"filter": "id in {v0}", "filter_params": {"v0": ids}}
    written = of_ids(ids, templates=False)
    assert "filter_params" not in written.arguments
    kinds = [(token.kind, token.value) for token in tokenize(written.text)]
    strings = [value for kind, value in kinds if kind is TokenKind.STRING]
    assert strings == ids
    assert len(kinds) == 2 + 2 + len(ids) + len(ids) - 1 + 1  # id in [ "..." , "..." ] and the end


@given(TEXT, st.lists(NUMBER, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_filters_hold_no_value_in_their_text_where_there_are_templates(text, numbers):
    where = parse_filter({"a": [text, "b"], "b": numbers, "c": {"gte": text}, "d": True})
    typed = where.typed({"a": "string", "b": "number", "c": "string", "d": "boolean"})
    made = of_filter(typed, ["d", "c", "b", "a"], templates=True)
    assert made.text == (
        "(metadata_3 in {v0}) and (metadata_2 in {v1}) and (metadata_1 >= {v2}) and (metadata_0 in {v3})"
    )
    assert made.values["v0"] == list(dict.fromkeys([text, "b"]))
    assert made.values["v2"] == text
    assert made.values["v3"] == [True]
    assert len(tokenize(of_filter(typed, ["d", "c", "b", "a"], templates=False).text)) > 20


def test_no_filter_is_an_empty_expression():
    assert of_filter(None, [], templates=True).arguments == {"filter": ""}


def test_filters_are_translated():
    where = parse_filter({"a": ['x"y', "z"], "b": {"gte": 1, "lt": 2.5}, "c": True, "d": {"gt": 3}})
    typed = where.typed({"a": "string", "b": "number", "c": "boolean", "d": "integer"})
    assert of_filter(typed, ["c", "a", "b", "d"], templates=False).text == (
        '(metadata_1 in ["x\\"y", "z"]) and (metadata_2 >= 1.0 and metadata_2 < 2.5) and '
        "(metadata_0 in [true]) and (metadata_3 >= 4)"
    )


class WithTemplates:
    """Milvus Lite that takes templates as a server does: by values that go past the text."""

    def __init__(self, client):
        self._client = client
        self.texts = []

    def __getattr__(self, name):
        method = getattr(self._client, name)
        if name not in ("query", "search", "delete"):
            return method

        def call(*positional, filter="", filter_params=None, **named):  # noqa: A002 -- pymilvus' name
            assert "ids" not in named
            self.texts.append(filter)
            values = filter_params or {}
            written = re.sub(r"\{(\w+)\}", lambda match: literal(values[match[1]]), filter)
            return method(*positional, filter=written, **named)

        return call


pytestmark = pytest.mark.usefixtures("closed_channels")


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """An index whose ids and metadata hold every odd character; each document is found by its own vector."""
    folder = tmp_path_factory.mktemp("odd")
    corpus = folder / "corpus.jsonl"
    entries = [
        {"_id": name, "title": "", "text": f"text {place}", "name": name, "number": 2**53 + 1 + place}
        for place, name in enumerate(NAMES)
    ]
    corpus.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    vectors = write_vectors(folder / "vectors", NAMES, clustered(len(NAMES), 16))
    address = f"milvus:{folder / 'index.db'}/odd"
    build_index(vectors, address, corpus=corpus, kind="exact", progress=False)
    yield address, clustered(len(NAMES), 16), corpus
    server_manager_instance.release_server(str(folder / "index.db"))


@pytest.fixture(params=[False, True], ids=["literals", "templates"])
def index(collection, request):
    opened = Index.open(collection[0])
    assert opened._templates is False
    if request.param:
        opened.client, opened._templates = WithTemplates(opened.client), True
    return opened


@pytest.mark.thorough
def test_documents_with_any_id_are_found_and_read(collection, index):
    vectors = collection[1]
    results = Searcher(index).search_vectors(vectors, k=1)
    assert [hits[0].id for hits in results] == NAMES
    assert [hits[0].text for hits in results] == [f"text {place}" for place in range(len(NAMES))]


@pytest.mark.thorough(but=["templates"])
def test_filters_on_any_value_find_it_alone(collection, index):
    for place, name in enumerate(NAMES):
        for where in ({"name": name}, {"name": [name, "nowhere"]}, {"number": 2**53 + 1 + place}):
            ids, _ = index.search(collection[1][:1], 5, where=where)
            assert ids == [[name]], where
    assert index.search(collection[1][:1], 5, where={"number": [0.5, 1e300]})[0] == [[]]
    assert index.search(collection[1][:1], 5, where={"number": {"gt": 1e300}})[0] == [[]]
    everything, _ = index.search(collection[1][:1], 1000, where={"number": {"gt": -1e300, "lt": 1e300}})
    assert len(everything[0]) == len(NAMES)


@pytest.mark.thorough
def test_deleting_an_id_deletes_it_alone(collection, index):
    count = len(index)
    for absent in ("zz'] or id != ['q", "nowhere", "x\ny", "x\\ny1", '"', "'", "{v1}"):
        with pytest.raises(IndexingError, match="nothing was deleted"):
            index.delete([absent])
    assert len(index) == count
    folder = collection[2].parent
    for place, name in enumerate(NAMES):
        index.delete([name])
        assert len(index) == count - 1, name
        row = collection[1][place : place + 1]
        one = write_vectors(folder / f"again-{place}-{index._templates}", [name], row)
        entry = {"_id": name, "text": f"text {place}", "name": name, "number": 2**53 + 1 + place}
        corpus = folder / "one.jsonl"
        corpus.write_text(json.dumps(entry) + "\n", encoding="utf-8")
        index.add(one, corpus=corpus, progress=False)
    assert len(index) == count
    np.testing.assert_equal([hit[0].id for hit in Searcher(index).search_vectors(collection[1], k=1)], NAMES)


@pytest.mark.thorough
@given(text=TEXT)
@settings(max_examples=100, deadline=None)
def test_deleting_an_unknown_id_deletes_nothing(collection, text):
    index = Index.open(collection[0])
    name = f"no such {text}"
    with pytest.raises(IndexingError, match="nothing was deleted"):
        index.delete([name])
    assert len(index) == len(NAMES)
