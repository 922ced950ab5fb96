"""Tests that data in mapped files equal data in memory: rows, draws, batches and digests."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mar_st.data import DataError, Triple, cache, distinct_texts, numbered, read, read_source, to_dataset
from mar_st.data.content import source_digest
from mar_st.data.sequences import Texts, Triples
from mar_st.recipes.schema import Data
from mar_st.stages.samplers import TrainRows, train_batches

ROWS = [
    {
        "query": f"问{number % 40}",
        "positives": [f"答{number}-{part}" for part in range(number % 3 + 1)],
        "negatives": [f"错{number % 25}-{part}" for part in range(number % 4 + 1)],
        "source": "ab"[number % 2],
    }
    for number in range(100)
]
PAIRS = [{"query": f"问{number}", "positive": f"答{number % 90}"} for number in range(100)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    monkeypatch.setenv("MAR_DATA_CACHE", str(tmp_path / "cache"))
    for name in ("arrow", "sequences", "columns"):
        monkeypatch.setattr(f"mar_st.data.{name}.ROWS_PER_READ", 16)


@pytest.fixture
def both(monkeypatch, tmp_path):
    """Reads rows in memory and mapped."""

    def read_both(rows, **fields):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        entry = Data(name="rows", path=str(path), prompt="", **fields)
        in_memory = read_source(entry, 5)
        with monkeypatch.context() as patched:
            patched.setattr(read, "MAPPED_BYTES", 0)
            mapped = read_source(entry, 5)
        return in_memory, mapped

    return read_both


@pytest.mark.parametrize("fields", [{}, {"where": {"source": ["b"]}}, {"limit": 30}])
def test_rows_counts_and_digest_are_the_same(both, fields):
    in_memory, mapped = both(ROWS, **fields)
    assert (in_memory.triples.key is None, mapped.triples.key is None) == (True, False)
    assert list(mapped.triples) == list(in_memory.triples)
    assert len(mapped.triples) == {"where": 50, "limit": 30}.get(next(iter(fields), ""), 100)
    assert mapped.left_out == in_memory.left_out
    assert mapped.digest == source_digest(mapped) == source_digest(in_memory)
    assert distinct_texts(mapped.triples) == distinct_texts(in_memory.triples)


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.5])
@pytest.mark.parametrize(("negatives", "positives"), [(0, "all"), (2, "all"), (2, "one"), (0, "one")])
def test_columns_are_drawn_alike(both, negatives, positives, weight):
    options = {"negatives": negatives, "positives": positives, "weight": weight, "seed": 3}
    columns = [to_dataset(source.triples, **options).to_dict() for source in both(ROWS)]
    assert columns[0] == columns[1] == by_hand(ROWS, **options)


def by_hand(rows, *, negatives, positives, weight, seed):
    """One row after the other with Python's generator, as the draw is defined."""
    rng, drawn = random.Random(seed), []
    while weight > 0:
        once = []
        for row in rows:
            kept = row["positives"] if positives == "all" else [rng.choice(row["positives"])]
            for positive in kept:
                few = len(row["negatives"]) < negatives
                chosen = (rng.choices if few else rng.sample)(row["negatives"], k=negatives)
                once.append([row["query"], positive, *chosen])
        if weight < 1:
            once = [once[n] for n in sorted(rng.sample(range(len(once)), round(weight * len(once))))]
        drawn += once
        weight -= 1
    names = ["query", "positive", *(f"negative_{number + 1}" for number in range(negatives))]
    return {name: [row[place] for row in drawn] for place, name in enumerate(names)}


def test_pairs_are_not_copied(both):
    _, mapped = both(PAIRS)
    data = to_dataset(mapped.triples, negatives=0, seed=0)
    stored = mapped.triples.table.column("query").chunks[0].buffers()[2].address
    assert data.data.column("query").chunks[0].buffers()[2].address == stored
    assert data.to_dict() == {name: [row[name] for row in PAIRS] for name in ("query", "positive")}


@pytest.mark.parametrize("rows", [ROWS, PAIRS])
def test_batches_are_the_same(both, rows):
    rows_of_batches = []
    for source in both(rows):
        data = {"rows": to_dataset(source.triples, negatives=0, seed=0)}
        batches = train_batches(data, 8, groups=2, seed=4)
        rows_of_batches.append([TrainRows(data).__getitems__(batch) for batch in batches])
    assert rows_of_batches[0] == rows_of_batches[1]


def test_single_texts_are_the_same_as_in_memory(both):
    texts = [{"text": f"字{number % 60}", "title": "题"} for number in range(100)]
    in_memory, mapped = both(texts, form="texts", role="query")
    assert list(mapped.texts) == list(in_memory.texts) == [f"题\n字{number % 60}" for number in range(100)]
    unique, (places,) = numbered(mapped.texts)
    assert list(unique) == list(dict.fromkeys(in_memory.texts))
    assert unique.take(places) == list(in_memory.texts)
    assert mapped.texts.lengths().tolist() == [len(text) for text in in_memory.texts]


def test_a_failed_or_killed_reading_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "MAPPED_BYTES", 0)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PAIRS) + "{}\n", "utf-8")
    entry = Data(name="rows", path=str(path), prompt="")
    with pytest.raises(DataError, match=r"rows\.jsonl:101: needs 'query'"):
        read_source(entry)
    assert not list((tmp_path / "cache").glob("*/rows.arrow"))
    path.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    expected = list(read_source(entry).triples)
    (rows,) = (tmp_path / "cache").glob("*/rows.arrow")
    whole = rows.read_bytes()
    # A kill can leave a part folder, or a file that was truncated before it was on the disk.
    rows.write_bytes(whole[:-100])
    part = rows.parent.with_name(f"{rows.parent.name}.part")
    part.mkdir()
    (part / "rows.arrow").write_bytes(b"half")
    assert list(read_source(entry).triples) == expected
    assert rows.read_bytes() == whole
    assert not part.exists()


def test_several_processes_convert_once(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "MAPPED_BYTES", 0)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    written, write = [], cache.write_table
    monkeypatch.setattr(cache, "write_table", lambda *args: (written.append(args[0]), write(*args)))
    with ThreadPoolExecutor(4) as pool:
        sources = list(
            pool.map(lambda _: read_source(Data(name="rows", path=str(path), prompt="")), range(4))
        )
    assert len(written) == 1
    assert all(list(source.triples) == list(sources[0].triples) for source in sources)


def test_other_content_or_settings_make_another_table(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "MAPPED_BYTES", 0)
    path = tmp_path / "rows.jsonl"

    def rows(content, **fields):
        path.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
        return list(read_source(Data(name="rows", path=str(path), prompt="", **fields)).triples)

    first = rows(PAIRS)
    assert rows(PAIRS[::-1]) == first[::-1]
    swapped = rows(PAIRS, columns={"query": "positive", "positive": "query"})
    assert [triple.query for triple in swapped] == [row["positive"] for row in PAIRS]
    assert rows(PAIRS) == first


def test_sequences_are_like_lists():
    texts = Texts.of([f"字{number}" for number in range(50)])
    assert (texts[3], texts[-1], list(texts[5:8]), len(texts)) == ("字3", "字49", ["字5", "字6", "字7"], 50)
    with pytest.raises(IndexError):
        texts[50]
    picked = texts.select(np.array([40, 2, 2]))
    assert list(picked) == ["字40", "字2", "字2"]
    assert list(Texts.joined([picked, ["新"], texts[:1]])) == ["字40", "字2", "字2", "新", "字0"]
    triples = Triples.of(read_like(ROWS))
    assert triples[-1] == read_like(ROWS)[-1]
    flat = [text for row in ROWS for text in (row["query"], *row["positives"], *row["negatives"])]
    assert list(triples.texts) == flat


def read_like(rows):
    return [
        Triple(row["query"], tuple(row["positives"]), tuple(row["negatives"]), source=row["source"])
        for row in rows
    ]


def test_a_text_that_is_not_unicode_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"query": "a", "positive": "\\ud800b"}\n', "utf-8")
    with pytest.raises(DataError, match="not valid Unicode"):
        read_source(Data(name="rows", path=str(path), prompt=""))
