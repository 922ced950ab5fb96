"""Studies of ClinicalTrials.gov: page by page, with the texts of each, and answers that are refused."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.curation.relatives.api_server import STUDIES, study

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.trials import fetch, studies
from medteb_mteb.curation.relatives.fetch.web import TransientError


@pytest.mark.parametrize(
    ("most", "page", "number", "sizes"),
    [(99, 10, STUDIES, [10, 10, 10]), (12, 10, 12, [10, 2]), (10, 10, 10, [10]), (3, 10, 3, [3])],
)
def test_as_many_studies_are_asked_for_as_wanted(ask, most, page, number, sizes):
    titles = [one["officialTitle"] for one in studies(ask, {"studies": most, "page": page})]
    assert titles == [f"Trial {i} of drug {i % 7}" for i in range(number)]
    assert [int(address.partition("pageSize=")[2].partition("&")[0]) for address in ask.asked] == sizes


def test_a_fetch_asks_for_all_that_reading_asks_for(ask):
    extent = {"studies": 99, "page": 7}
    fetch(ask, extent)
    fetched, ask.asked = ask.asked, []
    assert sum(1 for _ in studies(ask, extent)) == STUDIES
    assert ask.asked == fetched


@pytest.mark.parametrize(
    ("section", "texts"),
    [
        (
            study(1)["protocolSection"],
            ("Trial 1 of drug 1", "We give drug 1.\n\nArm 1.", "Pain 1 On scale 1\nSurvival"),
        ),
        ({"identificationModule": {}}, ("", "", "")),
        ({"identificationModule": {"officialTitle": None}, "outcomesModule": {}}, ("", "", "")),
        (
            {
                "identificationModule": {"officialTitle": "T"},
                "outcomesModule": {"primaryOutcomes": [{}, {"description": " a\n b "}, {"measure": "c"}]},
            },
            ("T", "", "a b\nc"),
        ),
    ],
)
def test_missing_texts_are_empty_and_each_outcome_has_a_line(ask, section, texts):
    ask.contents = [{"studies": [{"protocolSection": section}]}]
    (found,) = studies(ask, {"studies": 5, "page": 5})
    assert (found["officialTitle"], found["detailedDescription"], found["primaryOutcomes"]) == texts


@pytest.mark.parametrize(
    "broken",
    [
        7,
        [],
        {},
        {"protocolSection": {}},
        {"protocolSection": {"identificationModule": {"officialTitle": 7}}},
        {"protocolSection": {"identificationModule": {}, "descriptionModule": "x"}},
        {
            "protocolSection": {
                "identificationModule": {},
                "descriptionModule": {"detailedDescription": ["x"]},
            }
        },
        {"protocolSection": {"identificationModule": {}, "outcomesModule": {"primaryOutcomes": None}}},
        {"protocolSection": {"identificationModule": {}, "outcomesModule": {"primaryOutcomes": ["x"]}}},
    ],
)
def test_a_study_of_another_form_is_one_clear_error(ask, broken):
    ask.contents = [{"studies": [study(1), broken]}]
    with pytest.raises(BuildError, match="a study is not of the documented form"):
        list(studies(ask, {"studies": 5, "page": 5}))


PAGE = {"studies": [study(1)], "nextPageToken": "same"}


@pytest.mark.parametrize(
    ("pages", "asked"),
    [([PAGE] * 9, 2), ([PAGE | {"nextPageToken": 7}], 1), ([PAGE | {"studies": []}], 1)],
)
def test_a_list_of_studies_that_does_not_end_is_refused(ask, pages, asked):
    ask.contents = pages
    with pytest.raises(BuildError, match="the list of studies does not end"):
        list(studies(ask, {"studies": 99, "page": 9}))
    assert len(ask.asked) == asked


@pytest.mark.parametrize("content", [{}, {"studies": None}, [], b"<html>down</html>", b'{"studies": ['])
def test_an_answer_without_studies_is_a_passing_fault(ask, content):
    ask.contents = [content]
    with pytest.raises(TransientError):
        list(studies(ask, {"studies": 9, "page": 9}))
