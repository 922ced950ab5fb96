"""Tests of rows in the column layouts of other libraries, and of CSV and TSV files."""

from __future__ import annotations

import pytest

from mar_st.data.sequences import Triple
from mar_st.data.training import read_source
from mar_st.errors import MarError
from mar_st.recipes.schema import Data
from tests.conftest import write_jsonl

ROWS = [
    Triple("头疼怎么办", ("多休息", "喝水"), ("打球",)),
    Triple("发热怎么办", ("吃退烧药",), ("跑步", "熬夜")),
]


def read(path, **fields):
    return read_source(Data(name="rows", path=str(path), prompt="", **fields), 0)


def passages(texts):
    return [{"docid": str(n), "title": "", "text": text} for n, text in enumerate(texts)]


@pytest.mark.parametrize(
    "layout",
    [
        lambda t: {"query": t.query, "pos": list(t.positives), "neg": list(t.negatives)},
        lambda t: {
            "query_id": "7", "query": t.query,
            "positive_passages": passages(t.positives), "negative_passages": passages(t.negatives),
        },
        lambda t: {
            "anchor": t.query, "positive": list(t.positives),
            **{f"negative_{number}": text for number, text in enumerate(t.negatives, 1)},
        },
    ],
    ids=["FlagEmbedding", "Tevatron", "sentence-transformers"],
)  # fmt: skip
def test_rows_of_other_libraries_are_read(tmp_path, layout):
    path = write_jsonl(tmp_path / "rows.jsonl", [layout(triple) for triple in ROWS])
    assert read(path).triples == ROWS


def test_titles_of_passages_go_before_their_texts(tmp_path):
    row = {"query": "问", "positive_passages": [{"docid": "1", "title": "题", "text": "文"}]}
    assert read(write_jsonl(tmp_path / "rows.jsonl", [row])).triples == [Triple("问", ("题\n文",))]


def test_numbered_negatives_come_in_the_order_of_their_numbers(tmp_path):
    row = {"anchor": "问", "positive": "答"} | {f"negative_{number}": f"错{number}" for number in (10, 2, 1)}
    assert read(write_jsonl(tmp_path / "rows.jsonl", [row])).triples[0].negatives == ("错1", "错2", "错10")


def test_cells_without_a_text_are_no_negatives(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("anchor,positive,negative_1,negative_2\n问一,答一,错一,\n问二,答二,错二,错三\n", "utf-8")
    assert read(path).triples == [
        Triple("问一", ("答一",), ("错一",)),
        Triple("问二", ("答二",), ("错二", "错三")),
    ]


def test_scores_in_a_csv_file_are_read_as_numbers(tmp_path):
    path = tmp_path / "sts.csv"
    path.write_text("sentence1,sentence2,score\n头疼,头痛,0.9\n头疼,发热,0.1\n", "utf-8")
    assert read(path).triples == [Triple("头疼", ("头痛",), ("发热",))]
    path.write_text("sentence1,sentence2,score\n头疼,头痛,high\n", "utf-8")
    with pytest.raises(MarError, match=r"sts\.csv:2: needs 'sentence1', 'sentence2' and a number 'score'"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("query,positive\n问,答,再\n", r"rows\.csv:2: has 3 cells, and the header names 2 columns"),
        ("query,query\n问,答\n", r"rows\.csv:1: "),
        ("问,答\n问,答\n", r"rows\.csv:2: needs 'query' and 'positive'"),
    ],
)
def test_broken_files_name_the_line(tmp_path, content, message):
    path = tmp_path / "rows.csv"
    path.write_text(content, "utf-8")
    with pytest.raises(MarError, match=message):
        read(path)
