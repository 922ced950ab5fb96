"""Tests of connections to Milvus: addresses, tokens, versions and errors."""

from __future__ import annotations

from types import SimpleNamespace

import pymilvus
import pytest

from mar_st.index import Index, IndexingError
from mar_st.index.milvus.client import connect, failures_of, is_lite, is_newer, parse_address

pytestmark = pytest.mark.usefixtures("closed_channels")


@pytest.mark.parametrize(
    ("target", "uri", "collection"),
    [
        ("milvus:data/index.db", "data/index.db", "documents"),
        ("milvus:/data/a b.db/passages", "/data/a b.db", "passages"),
        ("milvus:http://localhost:19530", "http://localhost:19530", "documents"),
        ("milvus:https://host.org:443/notes_2", "https://host.org:443", "notes_2"),
    ],
)
def test_an_address_may_name_a_collection(target, uri, collection):
    assert parse_address(target) == (uri, collection)
    assert is_lite(target) == is_lite(uri) == (not uri.startswith("http"))


@pytest.mark.parametrize(
    "target",
    ["milvus:", "milvus:x", "milvus:x.db/a-b", "milvus:http://h/a/b", "milvus:ftp://h:1", "milvus:x.db/"],
)
def test_what_is_no_address_is_refused(target):
    with pytest.raises(IndexingError, match=r"is not an address: write milvus:PATH\.db or milvus:http:"):
        parse_address(target)


def test_the_token_is_sent_only_to_a_server(monkeypatch):
    seen = {}
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    monkeypatch.setattr(pymilvus, "MilvusClient", lambda uri, **given: seen.update({uri: given}))
    connect("http://127.0.0.1:19530")
    connect("somewhere.db")
    assert seen == {"http://127.0.0.1:19530": {"token": "root:secret"}, "somewhere.db": {"token": ""}}


@pytest.mark.parametrize(
    ("version", "nulls"),
    [("v2.3.5-lite", False), ("2.4.23", False), ("v2.5.0", True), ("3.0", True), ("milvus_lite-3.2.2", True)],
)
def test_fields_without_a_value_need_a_newer_server(version, nulls):
    assert is_newer(SimpleNamespace(get_server_version=lambda: version)) is nulls


def test_bad_addresses_are_refused(tmp_path):
    for target, message in (
        ("milvus:somewhere", "not an address"),
        (f"milvus:{tmp_path}/none.db", "There is no Milvus Lite index"),
        ("milvus:http://127.0.0.1:9/x", "cannot be opened .* USER:PASSWORD"),
    ):
        with pytest.raises(IndexingError, match=message):
            Index.open(target)


def test_a_refusal_of_milvus_is_one_line_with_the_address():
    with pytest.raises(IndexingError) as error, failures_of("milvus:x.db"):
        raise pymilvus.MilvusException(message="no such\n  field: year")
    assert str(error.value) == "Milvus (milvus:x.db) answered: no such field: year"


def test_other_errors_than_those_of_milvus_are_left_alone():
    with pytest.raises(KeyError), failures_of("milvus:x.db"):
        raise KeyError("year")


def test_a_long_refusal_is_cut():
    with pytest.raises(IndexingError) as error, failures_of("x.db"):
        raise pymilvus.MilvusException(message="word " * 1000)
    assert len(str(error.value)) < 350
