"""ClinicalTrials.gov through version 2 of its API: pages of studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.web import TransientError, parse_json_body
from medteb_mteb.curation.relatives.raw import clean, in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.relatives.fetch.responses import Requester

__all__ = ["FIELDS", "OFFICIAL_URL", "fetch", "studies"]

OFFICIAL_URL = "https://clinicaltrials.gov/api/v2"
#: Fields that the tasks use, as named by the API.
FIELDS = (
    "NCTId",
    "OfficialTitle",
    "DetailedDescription",
    "PrimaryOutcomeMeasure",
    "PrimaryOutcomeDescription",
)


def fetch(ask: Requester, extent: Mapping[str, Any]) -> None:
    """Fetch everything in the extent.

    Args:
        ask: Returns the response to a request.
        extent: `studies`: maximum studies; `page`: studies per page.
    """
    for _ in studies(ask, extent):
        pass


def studies(ask: Requester, extent: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield studies in API order: `officialTitle`, `detailedDescription`, `primaryOutcomes`.

    Missing texts are empty. Each outcome is on its own line: its measure, then its description.

    Args:
        ask: Returns the response to a request.
        extent: See `fetch`.

    Raises:
        BuildError: A response does not have the documented format, or the list of studies does not end.
    """
    query: dict[str, Any] = {"format": "json", "fields": "|".join(FIELDS)}
    seen: set[str] = set()
    count, token = 0, ""
    while count < extent["studies"]:
        size = min(extent["page"], extent["studies"] - count)
        more = {"pageToken": token} if token else {}
        content = ask("/studies", {**query, "pageSize": size, **more}, _parse, ".json")
        for study in content["studies"]:
            yield _fields(study)
        count += len(content["studies"])
        next_token = content.get("nextPageToken")
        if next_token is None:
            return
        if not isinstance(next_token, str) or next_token in seen or not content["studies"]:
            raise BuildError("ClinicalTrials.gov: the list of studies does not end.")
        seen.add(next_token)
        token = next_token


def _fields(study: Any) -> dict[str, str]:
    try:
        section = study["protocolSection"]
        outcomes = section.get("outcomesModule", {}).get("primaryOutcomes", [])
        lines = [
            " ".join(filter(None, (in_one_line(one.get("measure")), in_one_line(one.get("description")))))
            for one in outcomes
        ]
        return {
            "officialTitle": in_one_line(section["identificationModule"].get("officialTitle")),
            "detailedDescription": clean(section.get("descriptionModule", {}).get("detailedDescription")),
            "primaryOutcomes": "\n".join(filter(None, lines)),
        }
    except (KeyError, TypeError, AttributeError):
        raise BuildError(
            f"ClinicalTrials.gov: a study is not of the documented form: {repr(study)[:80]}."
        ) from None


def _parse(body: bytes) -> dict[str, Any]:
    content = parse_json_body(body)
    if not isinstance(content.get("studies"), list):
        raise TransientError(f"an answer without studies: {str(content)[:60]!r}")
    return content
