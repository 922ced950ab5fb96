"""bioRxiv and medRxiv by their common API: pages of preprints between two days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.web import Again, parse_json_body
from medteb_mteb.curation.relatives.raw import clean, in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.relatives.fetch.responses import Ask

__all__ = ["OFFICIAL", "SERVERS", "fetch", "preprints"]

OFFICIAL = "https://api.biorxiv.org"
#: Names of the servers in paths of the API.
SERVERS = ("biorxiv", "medrxiv")
#: Postings of an interval; an API that claims more is not believed.
_MOST_POSTINGS = 10_000_000
#: What the API says where an interval has nothing (more).
_NOTHING = "no posts found"


def fetch(ask: Ask, extent: Mapping[str, Any]) -> None:
    """Ask for everything that the extent names.

    Args:
        ask: Gives the response to a request.
        extent: `server`: one of `SERVERS`; `start` and `end`: first and last day (`YYYY-MM-DD`);
            `preprints`: the most preprints.
    """
    for _ in preprints(ask, extent):
        pass


def preprints(ask: Ask, extent: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and abstract of preprints in the order of the API, each DOI in its first version there.

    Args:
        ask: Gives the response to a request.
        extent: As `fetch`.

    Raises:
        BuildError: A response is not of the documented form, or the list does not end.
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
        Again: It is an answer of another kind, such as an error page.
        BuildError: It is not of the documented form.
    """
    content = parse_json_body(body)
    messages, collection = content.get("messages"), content.get("collection")
    message = messages[0] if isinstance(messages, list) and messages else None
    if not isinstance(message, dict) or not isinstance(collection, list):
        raise Again(f"an answer without messages and collection: {str(content)[:60]!r}")
    status = message.get("status")
    if status == _NOTHING:
        return 0, []
    if status != "ok":
        raise BuildError(f"The API of bioRxiv refuses a request: {repr(status)[:200]}.")
    total = str(message.get("total"))
    if not (total.isascii() and total.isdecimal() and len(total) < 12) or int(total) > _MOST_POSTINGS:
        raise BuildError(f"The API of bioRxiv gives no total: {repr(message.get('total'))[:80]}.")
    return int(total), [_posting(one) for one in collection]


def _posting(one: Any) -> tuple[str, str, str, str]:
    """Return DOI, version, title and abstract of a posting; a text that it lacks is empty."""
    try:
        doi, version = one["doi"], str(one["version"])
        if not isinstance(doi, str) or not doi:
            raise TypeError(doi)
        return doi, version, in_one_line(one.get("title")), clean(one.get("abstract"))
    except (KeyError, TypeError, AttributeError):
        raise BuildError(
            f"The API of bioRxiv: a posting is not of the documented form: {repr(one)[:80]}."
        ) from None
