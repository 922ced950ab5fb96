"""Sets out of a user's own copies of iCliniq, DrugBank and RELISH."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.medteb_mteb.curation.relatives.raw_samples import write_drugbank, write_icliniq, write_relish

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.own_copies import build_drugbank, build_icliniq, build_relish
from medteb_mteb.curation.relatives.raw import Raw


def test_repeated_questions_have_all_their_answers(tmp_path):
    built = build_icliniq(Raw(write_icliniq(tmp_path / "raw")), {})
    assert built.queries == {"q0": "I cough.", "q1": "My knee hurts."}
    assert built.qrels == {"q0": {"d0": 1, "d1": 1}, "q1": {"d2": 1}}
    assert built.left_out == {
        "repeated queries": 1, "repeated documents": 0, "pairs with an empty text": 1,
    }  # fmt: skip


@pytest.mark.parametrize("empty", [None, "", " \n", 7, ["x"]])
def test_a_record_without_texts_is_left_out_and_counted(tmp_path, empty):
    rows = [{"input": "I cough.", "answer_icliniq": empty}, {"input": empty, "answer_icliniq": "Drink tea."}]
    (tmp_path / "iCliniq.json").write_text(json.dumps(rows), encoding="utf-8")
    built = build_icliniq(Raw(tmp_path), {})
    assert (built.queries, built.corpus) == ({}, {})
    assert built.left_out == {"pairs with an empty text": 2}


@pytest.mark.parametrize("row", [{"input": "a"}, ["input", "answer_icliniq"], None])
def test_a_record_of_another_form_is_named(tmp_path, row):
    (tmp_path / "iCliniq.json").write_text(json.dumps([row]), encoding="utf-8")
    with pytest.raises(BuildError, match="record 0 has no input and answer_icliniq"):
        build_icliniq(Raw(tmp_path), {})


def test_drugs_with_a_description_become_queries(tmp_path):
    folder = write_drugbank(tmp_path / "raw")
    built = build_drugbank(Raw(folder), {})
    assert built.queries == {"q0": "Aspirin", "q1": "Insulin"}
    assert built.corpus == {"d0": ("", "It thins blood."), "d1": ("", "It lowers sugar.")}
    assert built.left_out["pairs with an empty text"] == 1
    plain = (folder / "full database.xml").read_text().replace(' xmlns="http://www.drugbank.ca"', "")
    (folder / "full database.xml").rename(tmp_path / "aside")
    (folder / "drugbank.xml").write_text(plain)
    assert build_drugbank(Raw(folder), {}).qrels == built.qrels
    (tmp_path / "aside").rename(folder / "full database.xml")
    with pytest.raises(BuildError, match=r"expected one drugbank\.xml or 'full database\.xml'"):
        build_drugbank(Raw(folder), {})


@pytest.mark.parametrize("parquet", [False, True])
def test_candidates_keep_their_grades(tmp_path, parquet):
    folder = write_relish(tmp_path / "raw")
    if parquet:
        rows = [json.loads(line) for line in (folder / "evaluation.jsonl").read_text().splitlines()]
        (folder / "evaluation.jsonl").unlink()
        pq.write_table(pa.Table.from_pylist(rows), folder / "evaluation-00000.parquet")
    built = build_relish(Raw(folder), {})
    assert built.qrels == {"q1": {"2": 2, "3": 0}, "q4": {"3": 0, "5": 1}}
    assert built.candidates == {"q1": ["2", "3"], "q4": ["3", "5"]}
    assert built.queries["q4"] == "On teeth\nWe study teeth."
    assert built.corpus["5"] == ("On dental care", "We study dental care.")
    assert built.left_out == {"articles without a relevant candidate": 1}


ARTICLE = {"doc_id": 1, "title": "On lungs", "abstract": None}
RELEVANT = {"doc_id": 2, "title": None, "abstract": "We study lungs.", "score": 1}


def relish(folder, query, *candidates):
    row = {"query": query, "candidates": list(candidates)}
    (folder / "evaluation.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return build_relish(Raw(folder), {})


def test_an_article_needs_only_a_title_or_an_abstract(tmp_path):
    built = relish(tmp_path, ARTICLE, RELEVANT)
    assert (built.queries, built.corpus) == ({"q1": "On lungs"}, {"2": ("", "We study lungs.")})


@pytest.mark.parametrize(
    ("query", "candidate", "message"),
    [
        ({"title": 5}, {}, r"row 1: an article without doc_id and text: \{'doc_id': 1, 'title': 5"),
        ({"title": None}, {}, "row 1: an article without doc_id and text"),
        ({"doc_id": None}, {}, "row 1: an article without doc_id and text"),
        ({"doc_id": " "}, {}, "row 1: an article without doc_id and text"),
        ({}, {"doc_id": {"id": 1}}, "row 1: an article without doc_id and text"),
        ({}, {"abstract": ["x"]}, "row 1: an article without doc_id and text"),
        ({}, {"score": "1"}, "row 1: score '1' is not 0, 1 or 2"),
        ({}, {"score": 0.5}, r"row 1: score 0\.5 is not 0, 1 or 2"),
        ({}, {"score": None}, "row 1: score None is not 0, 1 or 2"),
    ],
)
def test_an_article_of_another_form_is_named_with_its_row(tmp_path, query, candidate, message):
    with pytest.raises(BuildError, match=message):
        relish(tmp_path, ARTICLE | query, RELEVANT | candidate)
