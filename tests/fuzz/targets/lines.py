"""Corpora, training data and lists of texts, a JSON object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.data.read import read_triples
from mar_st.encode.corpus import read_corpus
from mar_st.errors import MarError
from mar_st.text.texts import read_texts
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path


def prepare(folder: Path) -> Target:
    """Set up the target: rows of line-based files."""
    path = folder / "lines.jsonl"

    def check(data: bytes) -> str:
        kind, content = data[:1], data[1:]
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        if kind == b"t":
            triples = read_triples(str(path))
            return f"triples {len(triples) > 0}"
        if kind == b"x":
            texts = read_texts(path)
            return f"texts {len(texts) > 0}"
        entries = list(read_corpus(path))
        for entry in entries:
            entry.id.encode()
            entry.document.encode()
        return f"corpus {len(entries) > 0}"

    corpus = (
        '{"_id": "d1", "title": "头疼", "text": "头疼怎么办", "year": 2020, "metadata": {"a": 1.5}}\n'
        '{"id": 7, "text": "x", "tags": ["a"]}\n'
    )
    triples = (
        '{"query": "q", "positive": "p", "negatives": ["a", "b"]}\n'
        '{"anchor": "q", "positive": "p", "negative": "n"}\n'
    )
    forms = (
        '{"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"}\n',
        '{"query": "a", "positive_passages": [{"docid": "1", "title": "t", "text": "b"}],'
        ' "negative_passages": []}\n',
        '{"sentence1": "a", "sentence2": "b", "label": 1}\n', '{"text": "a"}\n',
    )  # fmt: skip
    texts = '{"_id": "q1", "text": "头疼"}\n{"query": "发热"}\n'
    seeds = [
        b"c" + corpus.encode(),
        b"x" + texts.encode(),
        *(b"t" + form.encode() for form in (triples, *forms)),
    ]
    words = (
        b'"_id"',
        b'"text"',
        b'"title"',
        b'"negatives"',
        b"\\ud800",
        b"1e999",
        b"\n",
        b"\xef\xbb\xbf",
        b"\x0b",
        b"\x85",
    )
    return Target(seeds, check, (MarError,), words=words)
