"""Tests of every form of training data, of the settings of a data entry, and of rows left out or refused."""

from __future__ import annotations

import datasets
import pytest

from mar_st.data.columns import to_dataset
from mar_st.data.rows import locate
from mar_st.data.sequences import Triple
from mar_st.data.training import data_digest, read_source
from mar_st.errors import MarError
from mar_st.recipes.schema import Data
from tests.conftest import write_jsonl


def _entry(path, **settings):
    return Data(name="entry", path=str(path), **settings)


def _triples(path, **settings):
    return read_source(_entry(path, **settings)).triples


ROWS = [{"query": f"问{i}", "positive": f"答{i}", "source": "ab"[i % 2]} for i in range(10)]


def test_columns_where_and_limit_select_the_data(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    renamed = [{"title": r["query"], "body": r["positive"], "source": r["source"]} for r in ROWS]
    other = write_jsonl(tmp_path / "renamed.jsonl", renamed)
    columns = {"query": "title", "positive": "body"}
    kept = read_source(_entry(other, columns=columns, where={"source": ("a",)}), 0).triples
    assert kept == [t for t in read_source(_entry(path), 0).triples if int(t.query[1]) % 2 == 0]
    assert len(kept) == 5
    few = [read_source(_entry(path, limit=4), seed).triples for seed in (0, 0, 1)]
    assert few[0] == few[1] != few[2]
    assert [t.query for t in few[0]] == sorted(t.query for t in few[0])
    assert len(few[2]) == 4
    with pytest.raises(MarError, match="no column 'headline'"):
        read_source(_entry(other, columns={"query": "headline"}), 0)
    with pytest.raises(MarError, match=r"holds no triples with source in \['z'\]"):
        read_source(_entry(path, where={"source": ("z",)}), 0)


def test_labelled_pairs_are_grouped_by_their_first_sentence(tmp_path):
    judged = [("甲", "乙", 0), ("甲", "乙", 1), ("甲", "丙", 0), ("丁", "戊", 0)]  # both ways: a positive
    rows = [{"sentence1": a, "sentence2": b, "label": label, "source": "s"} for a, b, label in judged]
    path = write_jsonl(tmp_path / "pairs.jsonl", rows)
    expected = [Triple("甲", ("乙",), ("丙",), source="s")]
    assert _triples(path) == _triples(path, form="pairs") == expected


@pytest.mark.parametrize("labels", [("entailment", "neutral", "contradiction"), (0, 1, 2)])
def test_nli_contradictions_are_hard_negatives(tmp_path, labels):
    rows = [{"premise": "前", "hypothesis": h, "label": n} for h, n in zip("是中否", labels, strict=True)]
    path = write_jsonl(tmp_path / "nli.jsonl", rows)
    assert _triples(path) == [Triple("前", ("是",), ("否",))]
    bad = write_jsonl(tmp_path / "bad.jsonl", [{"premise": "前", "hypothesis": "后", "label": "maybe"}])
    with pytest.raises(MarError, match=r"bad.jsonl:1: .*'maybe'"):
        read_source(_entry(bad), 0)


def test_single_texts_are_read_and_blank_ones_refused(tmp_path):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": "一"}, {"text": "二"}])
    source = read_source(_entry(path, form="texts", role="document"), 0)
    assert (source.texts, source.triples) == (["一", "二"], [])
    empty = write_jsonl(tmp_path / "empty.jsonl", [{"text": "一"}, {"text": " "}])
    with pytest.raises(MarError, match=r"empty.jsonl:2: needs a 'text'"):
        read_source(_entry(empty, form="texts", role="document"), 0)


def test_instructions_of_rows_replace_the_prompt(tmp_path):
    rows = [{**row, "instruction": "找答案"} for row in ROWS]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    source = read_source(_entry(path, prompt=""), 0)
    data = to_dataset(source.triples, negatives=0, seed=0)
    assert data[0]["query"] == "<instruct>找答案\n<query>问0"
    with pytest.raises(MarError, match="which replaces a prompt"):
        read_source(_entry(path), 0)
    mixed = write_jsonl(tmp_path / "mixed.jsonl", [*rows, ROWS[0]])
    with pytest.raises(MarError, match="10 of 11 rows"):
        read_source(_entry(mixed, prompt=""), 0)


def test_unavailable_hub_names_are_reported():
    with pytest.raises(MarError, match=r"hub:nobody/nothing could not be loaded"):
        read_source(_entry("hub:nobody/nothing"), 0)


def test_one_column_may_serve_as_query_and_positive(tmp_path):
    path = write_jsonl(tmp_path / "texts.jsonl", [{"text": "头疼"}, {"text": "发热"}])
    triples = _triples(path, columns={"query": "text", "positive": "text"}, negatives=0)
    assert triples == [Triple("头疼", ("头疼",)), Triple("发热", ("发热",))]


def test_a_folder_with_texts_in_its_triples_is_read(tmp_path):
    expected = _triples(write_jsonl(tmp_path / "rows.jsonl", ROWS))
    assert expected[1] == Triple("问1", ("答1",), source="b")
    write_jsonl(tmp_path / "mined" / "triples.jsonl", ROWS)
    assert _triples(tmp_path / "mined") == expected


def test_omitted_rows_are_counted(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    source = read_source(_entry(path, where={"source": ("b",)}, limit=2), 0)
    assert source.left_out == {"not selected by 'where'": 5, "beyond the limit": 3}
    labelled = [("前", "是", 0), ("前", "中", 1), ("后", "否", 2), ("后", "无", -1)]
    rows = [{"premise": a, "hypothesis": b, "label": label} for a, b, label in labelled]
    source = read_source(_entry(write_jsonl(tmp_path / "nli.jsonl", rows)))
    assert source.triples == [Triple("前", ("是",))]
    assert source.left_out == {"neutral": 1, "without a label": 1, "without a positive": 1}


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        ({"sentence1": "甲", "sentence2": "乙", "score": 3.8}, {}, "score is 3.8; .*divide"),
        ({"query": "问", "positive_passages": [{"docid": "1"}]}, {}, "'positive_passages' should hold texts"),
        ({"query": "问", "positives": ["答", None]}, {}, "rows.jsonl:1: 'positives' should hold texts"),
        ({"query": "问", "positive": "答", "negatives": [" "]}, {}, "'negatives' should hold texts"),
        (ROWS[0], {"columns": {"postive": "positive"}}, "'postive', which no form reads"),
        (ROWS[0], {"columns": {"positive": "body"}}, "no column 'body'"),
        ({"sentence1": "甲", "sentence2": "乙", "score": 1, "instruction": "找"}, {}, "supported for pairs"),
        ({**ROWS[0], "instruction": "找"}, {"symmetric": True, "prompt": ""}, "an entry that is symmetric"),
    ],
)
def test_rows_that_do_not_fit_the_settings_are_refused(tmp_path, row, settings, message):
    with pytest.raises(MarError, match=message):
        read_source(_entry(write_jsonl(tmp_path / "rows.jsonl", [row]), **settings))


def test_rows_of_ids_cannot_be_selected_by_field(tmp_path):
    with pytest.raises(MarError, match="'columns' and 'where' do not apply"):
        read_source(_entry("package:medteb_mteb/MedTEBRetrieval/train", where={"source": ("a",)}))
    with pytest.raises(MarError, match="holds no triples"):
        read_source(_entry(tmp_path))


def test_single_texts_of_a_folder_come_from_the_side_of_their_role(tmp_path):
    write_jsonl(tmp_path / "corpus.jsonl", [{"_id": "d", "title": "题", "text": "文"}])
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q", "text": "问"}])
    texts = {r: read_source(_entry(tmp_path, form="texts", role=r)).texts for r in ("query", "document")}
    assert texts == {"query": ["问"], "document": ["题\n文"]}


def test_the_entry_sets_the_template_of_the_instruction(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [{**row, "instruction": "Find answers"} for row in ROWS])
    source = read_source(_entry(path, prompt="", instruction="{instruction}\nQuery: "))
    data = to_dataset(source.triples, negatives=0, seed=0)
    assert data[0] == {"query": "Find answers\nQuery: 问0", "positive": "答0"}
    assert source.triples[0].query == "问0"
    assert _triples(path, instruction="") == _triples(write_jsonl(tmp_path / "bare.jsonl", ROWS))


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
        assert _triples(name) == [Triple("前", ("是",), ("否",))]
    assert list(dict.fromkeys(calls)) == [  # 'auto' looks at the first row first
        ("org/nli", None, "train", None),
        ("org/nli", "zh", "dev", "abc"),
        ("org/nli", None, "test", None),
    ]
    with pytest.raises(MarError, match="a file or a folder is needed"):
        locate("hub:org/nli")


def test_the_digest_covers_contents_names_and_settings(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    first = data_digest(_entry(path))
    assert data_digest(_entry(path, weight=2)) == first == data_digest(_entry(path))
    assert data_digest(_entry(path, limit=3)) != first
    write_jsonl(tmp_path / "rows.jsonl", ROWS[:-1])
    assert data_digest(_entry(path)) != first
    with pytest.raises(MarError):
        data_digest(str(tmp_path / "absent"))


def test_positives_of_the_query_and_their_copies_are_no_negatives(tmp_path):
    rows = [
        {"query": "问", "positives": ["多喝水，ABC"], "negatives": ["打球", "多休息。", "多 喝 水 ａｂｃ"]},
        {"query": "问", "positives": ["多休息"], "negatives": ["熬夜", "打球!"]},
        {"query": "别的", "positives": ["打球"], "negatives": ["多休息"]},
    ]
    source = read_source(_entry(write_jsonl(tmp_path / "rows.jsonl", rows)))
    assert source.triples == [
        Triple("问", ("多喝水，ABC",), ("打球",)),
        Triple("问", ("多休息",), ("熬夜", "打球!")),
        Triple("别的", ("打球",), ("多休息",)),
    ]
    assert source.left_out == {"negatives that answer their query": 2}
