"""`medteb pairs`: texts for alignment, and the lines of a recipe that read them."""

from __future__ import annotations

import json

import pytest
import yaml

from mar_st.data import read_source
from mar_st.recipes.schema import Data

ARGS = ("pairs", "out", "--queries", "faq.jsonl", "--documents", "articles.jsonl", "-q")


@pytest.fixture
def sources(work, write):
    write(work / "faq.jsonl", [{"_id": f"f{i % 5}{i}", "text": f"第{i % 5}个问题？"} for i in range(6)])
    write(work / "articles.jsonl", [{"_id": f"a{i}", "text": f"第{i}篇文章。"} for i in range(10)])
    return work


def test_the_printed_lines_of_a_recipe_read_what_was_written(medteb, sources, rows_of):
    code, out, err = medteb(*ARGS)
    assert code == 0
    assert "no --against EDITION was given" in err
    first, second, title, *lines = out.splitlines()
    assert (first, second) == ("query: 5 of 6 faq.jsonl, 1 duplicate", "document: 10 of 10 articles.jsonl")
    assert title == "for the recipe:"
    entries = yaml.safe_load("\n".join(lines))
    assert len(entries) == 2
    for entry, file in zip(entries, ("queries.jsonl", "corpus.jsonl"), strict=True):
        read = read_source(Data.model_validate({"prompt": "", **entry}), 0)
        written = [row["text"] for row in rows_of(sources / "out" / file)]
        assert list(read.texts) == written


def test_a_share_of_a_source_is_drawn_by_the_seed(medteb, sources, rows_of):
    def drawn(out, *more):
        code, _, err = medteb("pairs", out, "--documents", "articles.jsonl=0.3", "-q", *more)
        assert code == 0, err
        return {row["_id"] for row in rows_of(sources / out / "corpus.jsonl")}

    first = drawn("a")
    assert len(first) == 3
    assert drawn("b") == first
    assert any(drawn(f"seed-{seed}", "--seed", seed) != first for seed in (1, 2))


def test_json_has_the_counts_of_the_text(medteb, sources, write):
    write(sources / "test.jsonl", [{"_id": "t", "text": "第3个问题"}])
    code, out, err = medteb(*ARGS, "--against", "test.jsonl", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["kept"] == {"query": 4, "document": 10}
    assert report["sources"][0]["dropped"] == {"duplicate": 1, "test-query": 1}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("pairs", "out", "-q", "--seed", "1"), "Alignment sets need queries or documents"),
        (("pairs", "out", "--queries", "faq.jsonl=2"), "a weight is above 0 and up to 1; got 2"),
        (("pairs", "out", "--queries", "gone.jsonl"), "There is no gone.jsonl"),
        ((*ARGS, "--column", "text=words"), "words"),
        ((*ARGS, "--threshold", "0"), "must be between 0 and 1; got 0"),
    ],
)
def test_unusable_sources_are_refused(medteb, sources, args, message):
    code, out, err = medteb(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert not (sources / "out" / "manifest.json").exists()
