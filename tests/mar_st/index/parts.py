"""Parts of a library of documents."""

from __future__ import annotations

import json

from mar_st.encode import write_vectors
from tests.mar_st.index.conftest import Library, clustered, entry


def part(folder, numbers, dim=32, seed=1, change=""):
    """A folder of vectors and a corpus of some documents."""
    folder.mkdir()
    entries = [{**entry(number), "text": entry(number)["text"] + change} for number in numbers]
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in entries)
    )
    vectors = clustered(len(entries), dim, seed)
    write_vectors(folder / "vectors", [one["_id"] for one in entries], vectors, space="a" * 64)
    return Library(folder / "vectors", folder / "corpus.jsonl", entries, vectors, clustered(20, dim, seed=7))
