"""PubMed and PubMed Central: searches page by page, texts of articles, answers that are refused."""

from __future__ import annotations

import re

import pytest
from tests.medteb_mteb.curation.relatives.api_server import PMC_TYPE, SEARCH_IDS

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import entrez
from medteb_mteb.curation.relatives.fetch.entrez import fetch_pmc, pmc_texts, pubmed_articles
from medteb_mteb.curation.relatives.fetch.web import TransientError


def found(*ids, count=None):
    return {"esearchresult": {"count": str(len(ids) if count is None else count), "idlist": list(ids)}}


def pmc(*articles):
    return f"{PMC_TYPE}<pmc-articleset>{''.join(articles)}</pmc-articleset>".encode()


def article(abstract="", body=""):
    front = f"<front><article-meta>{abstract}</article-meta></front>"
    return f"<article>{front}<body>{body}</body></article>"


def values(asked, name):
    return [match for address in asked for match in re.findall(rf"[?&]{name}=([^&]*)", address)]


def test_searches_are_paged(ask, monkeypatch):
    monkeypatch.setattr(entrez, "_IDS_PER_SEARCH", 20)
    fetch_pmc(ask, {"terms": {"diagnostic": 2_000, "therapeutic": 2_000}})
    assert values(ask.asked, "retstart") == ["0", "20", "40", "0", "20"]
    fetched = {i for ids in values(ask.asked, "id") for i in ids.split("%2C")}
    assert fetched == {i for (database, _), ids in SEARCH_IDS.items() if database == "pmc" for i in ids}


def test_a_search_for_fewer_articles_asks_for_fewer(ask, monkeypatch):
    monkeypatch.setattr(entrez, "_IDS_PER_SEARCH", 20)
    titles = [title for title, _ in pubmed_articles(ask, "medicine", 25)]
    assert titles == [f"Title of {number}" for number in range(2000, 2025)]
    assert values(ask.asked, "retmax") == ["20", "5"]


def test_ids_of_an_earlier_page_are_not_fetched_again(ask, monkeypatch):
    monkeypatch.setattr(entrez, "_IDS_PER_SEARCH", 2)
    one = pmc(article("<abstract><p>x</p></abstract>"))
    ask.contents = [found("1", "2", count=9), one, found("2", "3", count=9), one, found("3", "1", count=9)]
    assert list(pmc_texts(ask, "pain", 9)) == ["x", "x"]
    assert values(ask.asked, "id") == ["1%2C2", "3"]


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (
            "<abstract><p>Aim.</p><sec><title>Results</title><p>A <i>b</i>\nc.</p></sec></abstract>",
            "Aim. A b c.",
        ),
        (
            '<abstract abstract-type="graphical"><p>Seen.</p></abstract><abstract><p>Read.</p></abstract>',
            "Read.",
        ),
        ("<abstract><p>We saw <list><list-item><p>one</p></list-item></list></p></abstract>", "We saw one"),
    ],
)
def test_the_text_of_an_article_is_its_abstract_each_paragraph_once(ask, inside, text):
    ask.contents = [found("1"), pmc(article(inside))]
    assert list(pmc_texts(ask, "pain", 9)) == [text]


def test_without_an_abstract_the_introduction_counts(ask):
    methods = "<sec><title>Methods</title><p>We did.</p></sec>"
    titled = f"{methods}<sec><title>1. INTRODUCTION</title><p>By title.</p></sec>"
    typed = f'{methods}<sec sec-type="intro"><p>By type.</p></sec>'
    ask.contents = [
        found("1", "2", "3"),
        pmc(article(body=titled), article(body=methods), article(body=typed)),
    ]
    assert list(pmc_texts(ask, "pain", 9)) == ["By title.", "By type."]


def test_missing_titles_and_abstracts_are_empty(ask):
    inside = "<PubmedArticle><MedlineCitation><Article/></MedlineCitation></PubmedArticle>"
    ask.contents = [found("1"), f"<PubmedArticleSet>{inside}</PubmedArticleSet>".encode()]
    assert list(pubmed_articles(ask, "medicine", 9)) == [("", "")]


@pytest.mark.parametrize(
    ("result", "match"),
    [
        ({"count": "1", "idlist": ["1&db=nuccore"]}, "a search gives no list of numbers"),
        ({"count": "1", "idlist": [1]}, "a search gives no list of numbers"),
        ({"count": "1", "idlist": None}, "a search gives no list of numbers"),
        ({"count": "-1", "idlist": []}, "a search gives no count: '-1'"),
        ({"count": "9" * 19, "idlist": []}, "a search gives no count"),
        ({"idlist": ["1"]}, "a search gives no count: None"),
    ],
)
def test_a_search_of_another_form_is_refused(ask, result, match):
    ask.contents = [{"esearchresult": result}]
    with pytest.raises(BuildError, match=match):
        list(pubmed_articles(ask, "medicine", 9))


@pytest.mark.parametrize(
    "content",
    [{"esearchresult": {"ERROR": "Search Backend failed"}}, {"error": "rate"}, [], b"<html>", b"\xff"],
)
def test_a_search_without_a_result_is_a_passing_fault(ask, content):
    ask.contents = [content]
    with pytest.raises(TransientError):
        list(pubmed_articles(ask, "medicine", 9))


SET = b"<PubmedArticleSet>&b;</PubmedArticleSet>"
BOMB = b"""<?xml version="1.0"?><!DOCTYPE PubmedArticleSet [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>""" + SET
INSIDE = b"""<!DOCTYPE PubmedArticleSet SYSTEM "p.dtd" [<!ENTITY b SYSTEM "file:///etc/passwd">]>""" + SET


@pytest.mark.parametrize("body", [BOMB, INSIDE, b" " * 5000 + BOMB], ids=["bomb", "external", "later"])
def test_xml_with_entities_is_refused(ask, body):
    ask.contents = [found("1"), body]
    with pytest.raises(BuildError, match="declares entities of its own; it is refused"):
        list(pubmed_articles(ask, "medicine", 9))


@pytest.mark.parametrize("body", [BOMB.decode().encode("utf-16"), pmc(), b"<PubmedArticleSet>", b""])
def test_an_answer_that_is_no_set_of_articles_is_a_passing_fault(ask, body):
    ask.contents = [found("1"), body]
    with pytest.raises(TransientError):
        list(pubmed_articles(ask, "medicine", 9))
