"""Preprints of bioRxiv and medRxiv: pages, versions, errors, and a fetch that is continued."""

from __future__ import annotations

import json

import pytest
from tests.medteb_mteb.curation.relatives.api_server import POSTED, Answer, posting
from tests.medteb_mteb.curation.relatives.fetch.fetching import content, fetch

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import web
from medteb_mteb.curation.relatives.fetch.preprints import preprints

EXTENT = {"server": "biorxiv", "start": "2018-01-01", "end": "2022-12-20", "preprints": 1000}


def page_of(*postings, total=None):
    messages = [{"status": "ok", "total": str(len(postings) if total is None else total)}]
    return {"messages": messages, "collection": list(postings)}


def test_preprints_are_asked_for_page_by_page(apis, tmp_path):
    report = fetch(apis, "biorxiv", tmp_path / "a")
    assert [target for target, _ in apis.requests] == [
        f"/details/biorxiv/2018-01-01/2022-12-20/{cursor}/json" for cursor in (0, 3, 6)
    ]
    assert (report["responses"], report["requested"]) == (3, 3)
    apis.requests.clear()
    fetch(apis, "biorxiv", tmp_path / "b", most=4)
    assert len(apis.requests) == 2
    extent = json.loads((tmp_path / "b" / "fetched.json").read_text())["extent"]
    assert extent == {"server": "biorxiv", "start": "2018-01-01", "end": "2022-12-20", "preprints": 4}


def test_a_killed_fetch_of_preprints_continues(apis, tmp_path):
    fetch(apis, "biorxiv", tmp_path / "whole")
    asked = len(apis.requests)
    path = "/details/biorxiv/2018-01-01/2022-12-20/3/json"
    apis.faults[path] = [Answer(b"", 404)]
    with pytest.raises(BuildError, match="status 404"):
        fetch(apis, "biorxiv", tmp_path / "cut")
    assert fetch(apis, "biorxiv", tmp_path / "cut")["requested"] == 2
    assert len(apis.requests) == asked + 4  # the first page was not asked for again
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_a_server_of_preprints_that_is_busy_is_waited_for(apis, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(web.time, "sleep", slept.append)
    path = "/details/medrxiv/2018-01-01/2022-12-20/0/json"
    page = Answer(b"<html>maintenance</html>")
    apis.faults[path] = [Answer(b"", 429, {"Retry-After": "17"}), page, Answer(b"{}")]
    report = fetch(apis, "medrxiv", tmp_path / "a")
    assert (report["responses"], len(apis.requests)) == (1, 4)
    assert max(slept) == 17


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"messages": [{"status": "invalid interval"}], "collection": []}, "refuses a request: 'invalid int"),
        ({"messages": [{"status": "ok", "total": "-1"}], "collection": []}, "gives no total: '-1'"),
        ({"messages": [{"status": "ok", "total": "9" * 11}], "collection": []}, "gives no total"),
        ({"messages": [{"status": "ok", "total": 9}], "collection": [{"doi": 7}]}, "not of the documented"),
        ({"messages": [{"status": "ok", "total": 9}], "collection": ["x"]}, "not of the documented form"),
    ],
)
def test_a_page_of_preprints_of_another_form_is_one_clear_error(apis, tmp_path, content, match):
    apis.faults["/details/medrxiv/2018-01-01/2022-12-20/0/json"] = [Answer(json.dumps(content).encode())]
    with pytest.raises(BuildError, match=match):
        fetch(apis, "medrxiv", tmp_path / "a")
    assert not (tmp_path / "a" / "fetched.json").exists()


def test_a_list_of_preprints_that_does_not_end_is_refused(apis, tmp_path):
    page = {"messages": [{"status": "ok", "total": 900}], "collection": [posting("medrxiv", "10.1101/1", 1)]}
    for cursor in range(3):
        path = f"/details/medrxiv/2018-01-01/2022-12-20/{cursor}/json"
        apis.faults[path] = [Answer(json.dumps(page).encode())]
    with pytest.raises(BuildError, match="medrxiv: the list of preprints does not end"):
        fetch(apis, "medrxiv", tmp_path / "a")
    assert len(apis.requests) == 2


def test_each_preprint_comes_once_with_its_first_version(ask):
    titles = dict(preprints(ask, EXTENT))
    assert len(titles) == len({doi for doi, _ in POSTED["biorxiv"]}) == 8
    assert titles["A study of protein 2"] == "Protein 2 binds,\nversion 1."
    assert titles["A study of protein 5"] == ""  # without an abstract


@pytest.mark.parametrize(("most", "pages"), [(0, 0), (3, 1), (4, 2), (8, 3)])
def test_no_page_is_asked_for_beyond_the_wanted_number(ask, most, pages):
    every = list(preprints(ask, EXTENT))
    ask.asked.clear()
    assert list(preprints(ask, {**EXTENT, "preprints": most})) == every[:most]
    assert len(ask.asked) == pages


def test_an_interval_without_postings_is_empty(ask):
    ask.contents = [{"messages": [{"status": "no posts found"}], "collection": []}]
    assert list(preprints(ask, EXTENT)) == []
    assert len(ask.asked) == 1


def test_missing_texts_are_empty_and_a_missing_doi_is_an_error(ask):
    one = posting("biorxiv", "10.1101/1", 1)
    ask.contents = [page_of({"doi": "10.1101/9", "version": 1}, one)]
    assert list(preprints(ask, EXTENT)) == [
        ("", ""),
        ("A study of protein 1", "Protein 1 binds,\nversion 1."),
    ]
    for broken in ({**one, "doi": ""}, {"version": 1, "title": "x"}):
        ask.contents = [page_of(broken)]
        with pytest.raises(BuildError, match="a posting is not of the documented form"):
            list(preprints(ask, EXTENT))
