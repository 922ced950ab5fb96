"""Tests of reading data: rows left out, rows refused, fields carried along."""

from __future__ import annotations

import gzip
import json

import datasets
import pytest

from mar_st.data.columns import to_dataset
from mar_st.data.rows import locate
from mar_st.data.sequences import Triple
from mar_st.data.training import data_digest, read_source
from mar_st.errors import MarError
from mar_st.recipes.schema import Data


def _write(path, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return str(path)


def _entry(path, **settings):
    return Data(name="entry", path=str(path), **settings)


def read_triples(path):
    return read_source(_entry(path, instruction="")).triples


ROWS = [{"query": f"问{i}", "positive": f"答{i}", "source": "ab"[i % 2]} for i in range(6)]


def test_gzipped_lines_and_a_folder_with_texts_in_its_triples_are_read(tmp_path):
    expected = read_triples(_write(tmp_path / "rows.jsonl", ROWS))
    assert expected[1] == Triple("问1", ("答1",), source="b")
    assert read_triples(_write(tmp_path / "rows.jsonl.gz", ROWS)) == expected
    (tmp_path / "mined").mkdir()
    _write(tmp_path / "mined" / "triples.jsonl", ROWS)
    assert read_triples(str(tmp_path / "mined")) == expected
    kept = read_source(_entry(tmp_path / "mined", where={"source": ("a",)})).triples
    assert kept == expected[::2]


def test_omitted_rows_are_counted(tmp_path):
    path = _write(tmp_path / "rows.jsonl", ROWS)
    source = read_source(_entry(path, where={"source": ("b",)}, limit=2), 0)
    assert source.left_out == {"not selected by 'where'": 3, "beyond the limit": 1}
    assert source.summary() == "2 triples; left out: 3 not selected by 'where', 1 beyond the limit"
    assert read_source(_entry(path)).summary() == "6 triples"
    rows = [
        {"premise": "前", "hypothesis": "是", "label": 0},
        {"premise": "前", "hypothesis": "中", "label": 1},
        {"premise": "后", "hypothesis": "否", "label": 2},
        {"premise": "后", "hypothesis": "无", "label": -1},
    ]
    source = read_source(_entry(_write(tmp_path / "nli.jsonl", rows)))
    assert source.triples == [Triple("前", ("是",))]
    assert source.left_out == {"neutral": 1, "without a label": 1, "without a positive": 1}


def test_a_pair_that_was_judged_both_ways_is_a_positive(tmp_path):
    rows = [{"sentence1": "甲", "sentence2": "乙", "label": n, "source": "s"} for n in (0, 1)]
    triples = read_triples(_write(tmp_path / "pairs.jsonl", rows))
    assert triples == [Triple("甲", ("乙",), source="s")]


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        ({"sentence1": "甲", "sentence2": "乙", "score": 3.8}, {}, "score is 3.8; .*divide"),
        ({"query": "问", "positives": ["答", None]}, {}, "rows.jsonl:1: 'positives' should hold texts"),
        ({"query": "问", "positive": "答", "negatives": [" "]}, {}, "'negatives' should hold texts"),
        (ROWS[0], {"columns": {"postive": "positive"}}, "'postive', which no form reads"),
        (ROWS[0], {"columns": {"positive": "body"}}, "no column 'body'"),
        (
            {"sentence1": "甲", "sentence2": "乙", "score": 1, "instruction": "找"},
            {},
            "not supported for pairs",
        ),
        ({**ROWS[0], "instruction": "找"}, {"symmetric": True, "prompt": ""}, "an entry that is symmetric"),
    ],
)
def test_rows_that_do_not_fit_the_settings_are_refused(tmp_path, row, settings, message):
    with pytest.raises(MarError, match=message):
        read_source(_entry(_write(tmp_path / "rows.jsonl", [row]), **settings))


def test_rows_of_ids_cannot_be_selected_by_field(tmp_path):
    with pytest.raises(MarError, match="'columns' and 'where' do not apply"):
        read_source(_entry("package:medteb_mteb/MedTEBRetrieval/train", where={"source": ("a",)}))
    with pytest.raises(MarError, match="holds no triples"):
        read_source(_entry(tmp_path))


def test_single_texts_of_a_folder_come_from_the_side_of_their_role(tmp_path):
    _write(tmp_path / "corpus.jsonl", [{"_id": "d", "title": "题", "text": "文"}])
    _write(tmp_path / "queries.jsonl", [{"_id": "q", "text": "问"}])
    texts = {r: read_source(_entry(tmp_path, form="texts", role=r)).texts for r in ("query", "document")}
    assert texts == {"query": ["问"], "document": ["题\n文"]}


def test_the_entry_sets_the_template_of_the_instruction(tmp_path):
    path = _write(tmp_path / "rows.jsonl", [{**row, "instruction": "Find answers"} for row in ROWS])
    source = read_source(_entry(path, prompt="", instruction="{instruction}\nQuery: "))
    data = to_dataset(source.triples, negatives=0, seed=0)
    assert data[0] == {"query": "Find answers\nQuery: 问0", "positive": "答0"}
    assert source.triples[0].query == "问0"
    for triples in (read_source(_entry(path, instruction="")).triples, read_triples(path)):
        assert triples == read_triples(_write(tmp_path / "bare.jsonl", ROWS))


def test_a_data_set_is_loaded_by_its_name(tmp_path, monkeypatch):
    rows = {"premise": ["前", "前"], "hypothesis": ["是", "否"], "label": [1, 0]}
    features = datasets.Features(
        premise=datasets.Value("string"),
        hypothesis=datasets.Value("string"),
        label=datasets.ClassLabel(names=["contradiction", "entailment"]),
    )
    calls = []

    def load(path, config, *, split, revision):
        calls.append((path, config, split, revision))
        return datasets.Dataset.from_dict(rows, features=features)

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda *_, **__: ["validation", "train"])
    for name in ("hub:org/nli", "hub:org/nli@abc:zh:dev", "hub:org/nli:test"):
        # The label numbers are reversed here; the class names give their meaning.
        assert read_source(_entry(name)).triples == [Triple("前", ("是",), ("否",))]
    assert list(dict.fromkeys(calls)) == [  # 'auto' looks at the first row first
        ("org/nli", None, "train", None),
        ("org/nli", "zh", "dev", "abc"),
        ("org/nli", None, "test", None),
    ]
    with pytest.raises(MarError, match="a file or a folder is needed"):
        locate("hub:org/nli")


def test_the_digest_covers_contents_names_and_settings(tmp_path):
    path = _write(tmp_path / "rows.jsonl", ROWS)
    first = data_digest(_entry(path))
    assert data_digest(_entry(path, weight=2)) == first == data_digest(_entry(path))
    assert data_digest(_entry(path, limit=3)) != first
    _write(tmp_path / "rows.jsonl", ROWS[:-1])
    assert data_digest(_entry(path)) != first
    with pytest.raises(MarError, match="There is no file"):
        data_digest(str(tmp_path / "absent"))


def test_positives_of_the_query_and_their_copies_are_no_negatives(tmp_path):
    rows = [
        {"query": "问", "positives": ["多喝水，ABC"], "negatives": ["打球", "多休息。", "多 喝 水 ａｂｃ"]},
        {"query": "问", "positives": ["多休息"], "negatives": ["熬夜", "打球!"]},
        {"query": "别的", "positives": ["打球"], "negatives": ["多休息"]},
    ]
    source = read_source(_entry(_write(tmp_path / "rows.jsonl", rows)))
    assert source.triples == [
        Triple("问", ("多喝水，ABC",), ("打球",)),
        Triple("问", ("多休息",), ("熬夜", "打球!")),
        Triple("别的", ("打球",), ("多休息",)),
    ]
    assert source.left_out == {"negatives that answer their query": 2}
