"""bioRxiv and medRxiv through their common API: pages of preprints between two days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.web import TransientError, parse_json_body
from medteb_mteb.curation.relatives.raw import clean, in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.relatives.fetch.responses import Requester

__all__ = ["OFFICIAL_URL", "SERVERS", "fetch", "preprints"]

OFFICIAL_URL = "https://api.biorxiv.org"
#: Names of the servers in the API's paths.
SERVERS = ("biorxiv", "medrxiv")
#: Maximum plausible postings of an interval; a larger total is an error.
_MAX_POSTINGS = 10_000_000
#: Status of the API if an interval has no (more) postings.
_NO_POSTINGS_STATUS = "no posts found"


def fetch(ask: Requester, extent: Mapping[str, Any]) -> None:
    """Fetch everything in the extent.

    Args:
        ask: Returns the response to a request.
        extent: `server`: one of `SERVERS`; `start` and `end`: first and last day (`YYYY-MM-DD`);
            `preprints`: maximum preprints.
    """
    for _ in preprints(ask, extent):
        pass


def preprints(ask: Requester, extent: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and abstract of preprints in API order; for each DOI, the version that the API lists first.

    Args:
        ask: Returns the response to a request.
        extent: See `fetch`.

    Raises:
        BuildError: A response does not have the documented format, or the list does not end.
    """
    server, start, end = extent["server"], extent["start"], extent["end"]
    dois: set[str] = set()
    postings: set[tuple[str, str]] = set()
    cursor = 0
    while len(dois) < extent["preprints"]:
        total, page = ask(f"/details/{server}/{start}/{end}/{cursor}/json", {}, _parse, ".json")
        before = len(postings)
        for doi, version, title, abstract in page:
            postings.add((doi, version))
            if doi not in dois and len(dois) < extent["preprints"]:
                dois.add(doi)
                yield title, abstract
        cursor += len(page)
        if not page or cursor >= total:
            return
        if len(postings) == before:
            raise BuildError(f"{server}: the list of preprints does not end.")


def _parse(body: bytes) -> tuple[int, list[tuple[str, str, str, str]]]:
    """Return the number of postings of the interval, and the page: DOI, version, title, abstract.

    Raises:
        TransientError: The body is something else, such as an error page.
        BuildError: The body does not have the documented format.
    """
    content = parse_json_body(body)
    messages, collection = content.get("messages"), content.get("collection")
    message = messages[0] if isinstance(messages, list) and messages else None
    if not isinstance(message, dict) or not isinstance(collection, list):
        raise TransientError(f"an answer without messages and collection: {str(content)[:60]!r}")
    status = message.get("status")
    if status == _NO_POSTINGS_STATUS:
        return 0, []
    if status != "ok":
        raise BuildError(f"The API of bioRxiv refuses a request: {repr(status)[:200]}.")
    total = str(message.get("total"))
    if not (total.isascii() and total.isdecimal() and len(total) < 12) or int(total) > _MAX_POSTINGS:
        raise BuildError(f"The API of bioRxiv gives no total: {repr(message.get('total'))[:80]}.")
    return int(total), [_posting(one) for one in collection]


def _posting(posting: Any) -> tuple[str, str, str, str]:
    """Return DOI, version, title and abstract of a posting; missing texts are empty."""
    try:
        doi, version = posting["doi"], str(posting["version"])
        if not isinstance(doi, str) or not doi:
            raise TypeError(doi)
        return doi, version, in_one_line(posting.get("title")), clean(posting.get("abstract"))
    except (KeyError, TypeError, AttributeError):
        raise BuildError(
            f"The API of bioRxiv: a posting is not of the documented form: {repr(posting)[:80]}."
        ) from None
