from __future__ import annotations

import random
from collections import Counter

import pytest

from mar_st.errors import MarError
from medteb_mteb.curation.files.records import Text
from medteb_mteb.curation.sts.select import DictionaryEntry, SwappedQuery
from medteb_mteb.curation.sts.split import split_by_entry
from medteb_mteb.curation.sts.step import draw
from medteb_mteb.curation.texts.near_duplicates import near_duplicates
from medteb_mteb.curation.training.rows import HeldOut

TERMS = ["高血压", "糖尿病", "冠心病", "支气管哮喘", "痛风", "湿疹", "胃溃疡", "贫血", "白内障", "失眠症"]
ASKED = ["{}患者每天走路多少步合适", "得了{}还能不能打新冠疫苗", "哪些化验可以查出{}"]
CANDIDATES = [
    # Half of the entries are reversed.
    SwappedQuery(
        Text(f"q{i}{j}", asked.format(term)),
        DictionaryEntry(f"{term}病", term) if j == 1 else DictionaryEntry(term, f"{term}病"),
        "",
    )
    for i, term in enumerate(TERMS)
    for j, asked in enumerate(ASKED)
]
EVERY = [one.query.id for one in CANDIDATES]


def apart(text):
    """A text with words of its own, which is near no other."""
    draw = random.Random(text)
    return text + "".join(chr(draw.randrange(0x4E00, 0x9000)) for _ in range(30))


def split(*, whole=None, sentences=None, near=False, **settings):
    texts = {one.query.id: [one.query.text if near else apart(one.query.text)] for one in CANDIDATES}
    settings = {"test": 0.3, **settings}
    settings = {"training_queries": (), "held_out": HeldOut(), **settings}
    entries = {one.query.id: one.entry.pair for one in CANDIDATES}
    chosen = EVERY if whole is None else whole
    return split_by_entry(entries, {**texts, **(sentences or {})}, whole=chosen, **settings)


def test_entries_are_on_one_side():
    sides = split()
    assert len(sides.test) == 9
    assert sorted(sides.test + sides.train) == EVERY
    assert {name[1] for name in sides.test}.isdisjoint(name[1] for name in sides.train)
    assert split() == sides
    assert split(test=9) == sides
    assert len(split(test=30).test) == 30


def test_no_training_query_is_near_the_test():
    texts = {one.query.id: one.query.text for one in CANDIDATES}
    free = split()
    sides = split(near=True)
    test, train = ([texts[name] for name in side] for side in (sides.test, sides.train))
    assert not list(near_duplicates(test, train))
    assert sides.test == free.test
    near = {name for name, reason in sides.left_out.items() if reason == "near-test"}
    assert near
    assert near == set(free.train) - set(sides.train)


def test_queries_with_a_rewrite_missing_stay_out_of_the_test():
    whole = [name for name in EVERY if name[2] != "0"]
    sides = split(whole=whole)
    assert set(sides.test) <= set(whole)
    assert any(name[2] == "0" for name in sides.train)
    entries = {name[1] for name in sides.test}
    assert {name for name, why in sides.left_out.items() if why == "incomplete"} == {
        f"q{i}0" for i in entries
    }


def test_sentences_of_the_test_are_in_no_training_row():
    sides = split()
    first, other = sides.test[0], sides.train[0]
    shared = {first: ["x", "一句相同的话吗？"], other: ["y", "一句相同的话吗"]}
    assert split(sentences=shared).left_out == {other: "shared-sentence"}


def test_queries_near_a_training_query_are_left_out_of_the_test():
    texts = {one.query.id: one.query.text for one in CANDIDATES}
    first = split().test[0]
    sides = split(training_queries=[apart(texts[first]) + "呀"])
    assert sides.left_out == {first: "leak"}
    with pytest.raises(MarError, match="test is empty"):
        split(training_queries=[apart(text) for text in texts.values()])


def test_a_test_smaller_than_the_smallest_entry_is_refused():
    with pytest.raises(MarError, match=r"2 of 30 queries"):
        split(test=2)


def test_each_kind_is_drawn_for_a_third_of_the_queries():
    counts = Counter(draw(f"q{i}") for i in range(6000))
    assert set(counts) == {"positive", "negative-1", "negative-2"}
    assert all(abs(count - 2000) < 200 for count in counts.values())
