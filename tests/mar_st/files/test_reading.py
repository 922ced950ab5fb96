"""JSON from anyone: one error, in one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mar_st.commands.search import _show
from mar_st.encode import VectorFolder
from mar_st.errors import MarError
from mar_st.files import JsonError, counted, one_line, printable, read_digests, read_json
from mar_st.files.reading import read_record
from mar_st.index import Hit, Index
from mar_st.index.results import Leg
from mar_st.integrity.verify import verify
from mar_st.modules.layout import listed_modules, query_routes, saved_chain
from mar_st.online.listing import Listing

if TYPE_CHECKING:
    from pathlib import Path

DAMAGED = [b"[" * 100_000, b'{"format": "\\ud800"}', b"\xff{}", b'{"a"', b"", b'{"a": ' + b"9" * 5000 + b"}"]
IDS = ["deep", "half of a pair", "no UTF-8", "cut", "empty", "long number"]


@pytest.mark.parametrize("content", [*DAMAGED, b"[]"], ids=[*IDS, "a list"])
def test_a_damaged_record_is_as_a_missing_one(tmp_path, content):
    path = tmp_path / "record.json"
    assert read_record(path) is None
    path.write_bytes(content)
    assert read_record(path) is None
    path.write_bytes(b'{"a": 1}')
    assert read_record(path) == {"a": 1}


@pytest.mark.parametrize("content", DAMAGED, ids=IDS)
def test_damaged_json_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(JsonError) as raised:
        read_json(path)
    assert "\n" not in str(raised.value)


def test_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": ["\\u6587\\ud83d\\ude00", 1, null]}', encoding="utf-8")
    assert read_json(path) == {"a": ["文😀", 1, None]}
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "b.json")
    assert one_line(ValueError("a\n  b\tc")) == "a b c"


@pytest.mark.parametrize("content", DAMAGED, ids=IDS)
def test_damaged_listings_are_one_error(tmp_path: Path, content: bytes) -> None:
    """Deep nesting was a RecursionError, and a modules.json that is not UTF-8 a UnicodeDecodeError."""
    for name in ("manifest.json", "export.json", "modules.json", "digests.json"):
        (tmp_path / name).write_bytes(content)
    reads = [Index.open, VectorFolder.open, Listing.read, listed_modules, read_digests]
    for read in reads:
        with pytest.raises(MarError):
            read(tmp_path)  # type: ignore[operator]
    (tmp_path / "export.json").unlink()
    (tmp_path / "shards").mkdir()
    assert not verify(tmp_path).whole


@pytest.mark.parametrize(
    "change",
    [
        {"types": {}},
        {"structure": {"query": {"a": 1}}},
        {"structure": {"query": "x"}},
        {"structure": []},
        {"types": {"x": 3}},
    ],
)
def test_a_router_that_names_unknown_modules_is_one_error(tmp_path: Path, change: dict[str, object]) -> None:
    listing = {"types": {"x": "a.B"}, "structure": {"query": ["x"]}, "parameters": {}}
    modules = [{"path": "", "type": "a.Router"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (tmp_path / "router_config.json").write_text(json.dumps(listing), encoding="utf-8")
    assert query_routes(tmp_path) == ["query"]
    assert [part.path.name for part in saved_chain(tmp_path, "document")] == ["x"]
    (tmp_path / "router_config.json").write_text(json.dumps({**listing, **change}), encoding="utf-8")
    with pytest.raises(MarError, match=r"router_config\.json"):
        saved_chain(tmp_path, "query")


def test_a_router_without_the_route_and_without_queries_is_one_error(tmp_path: Path) -> None:
    listing = {"types": {"x": "a.B"}, "structure": {"document": ["x"]}}
    modules = [{"path": "", "type": "a.Router"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (tmp_path / "router_config.json").write_text(json.dumps(listing), encoding="utf-8")
    with pytest.raises(MarError, match="has no route 'query'"):
        saved_chain(tmp_path, "query")


def test_control_characters_are_escaped() -> None:
    text = "a\x1b]0;t\x07\x9b2J\u202eb\u2066\r\n\ud800 头疼 é 🩺"
    assert printable(text) == "a\\x1b]0;t\\x07\\x9b2J\\u202eb\\u2066\\r\\n\\ud800 头疼 é 🩺"


def test_hits_cannot_send_control_characters_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hit = Hit("i\x1b[2J", 1.0, 1, "t\x9b1m", "s\x1b]8;;x\x07\nn", {"f\x1b": "v\x07"}, {"dense": Leg(1, 1.0)})
    _show(hit)
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 3
    assert not set(shown) & set("\x1b\x07\x9b")
    assert r"i\x1b[2J" in shown


def test_a_noun_agrees_with_its_number() -> None:
    assert [counted(number, "pair") for number in (0, 1, 1200)] == ["0 pairs", "1 pair", "1,200 pairs"]
    assert [counted(number, "query", "queries") for number in (1, 2)] == ["1 query", "2 queries"]
