"""Filters as lines and as JSON, on the documents of a segment and as expressions for Milvus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.index import Index, build_index
from mar_st.index.errors import FilterError
from mar_st.index.filters import parse_filter
from mar_st.index.milvus.expressions import of_filter
from tests.fuzz.engine import Target
from tests.mar_st.index.conftest import make_library

if TYPE_CHECKING:
    from pathlib import Path


def prepare(folder: Path) -> Target:
    """Set up the target: metadata filters."""
    library = make_library(folder / "library", count=60, dim=8)
    build_index(
        library.open, folder / "index", corpus=library.corpus, kind="exact", bm25=False, progress=False
    )
    index = Index.open(folder / "index")

    def check(data: bytes) -> str:
        where = parse_filter(data.decode("utf-8", "surrogateescape"))
        if where is None:
            return "no condition"
        assert parse_filter(where) == where
        assert hash(where) == hash(parse_filter(where))
        typed = where.typed(index.fields)
        assert typed.typed(index.fields) == typed
        mask = index.segments[0].mask(typed)  # type: ignore[attr-defined]
        hits = index.search(library.vectors[:1], 60, where=where)
        assert len(hits[0][0]) == mask.count
        if not typed.impossible:
            for templates in (True, False):
                of_filter(typed, sorted(index.fields), templates=templates)
        return f"{len(where.conditions)} conditions, some {mask.count > 0}"

    lines = [
        "department=心内科|儿科,year>=2004", "year>2003,year<=2020", "score<3.5", "checked=true",
        "date>=2024-01-01,date<2024-06-01",
        '{"department": ["心内科", "儿科"], "year": {"gte": 2001, "lt": 2020.5}}',
        '{"score": [1, 2.5, 9007199254740993]}',
        '{"checked": false, "date": {"gt": ""}}', '{"year": [9223372036854775807, -9223372036854775808]}',
        '{"year": 1e300}',
    ]  # fmt: skip
    words = (
        "year",
        "score",
        "checked",
        "date",
        "department",
        "=",
        ">=",
        "<",
        "|",
        ",",
        "true",
        "1e309",
        "nan",
        "-0",
        "0x10",
        "1_0",
        "²",
    )
    return Target(
        [line.encode() for line in lines], check, (FilterError,), words=tuple(word.encode() for word in words)
    )
