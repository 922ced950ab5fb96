"""English Wikipedia through its API: pages of categories, and their text in sections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.web import TransientError, parse_json_body

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from medteb_mteb.curation.relatives.fetch.responses import Requester

__all__ = ["OFFICIAL_URL", "fetch", "members", "sections"]

OFFICIAL_URL = "https://en.wikipedia.org"
_API_PATH = "/w/api.php"
_COMMON_PARAMS = {"action": "query", "format": "json", "formatversion": 2, "maxlag": 5}
#: Temporary errors; the server asks clients to wait five seconds.
_TEMPORARY_ERRORS = ("maxlag", "ratelimited", "readonly")
_RETRY_SECONDS = 5.0
#: Maximum list pages of one category, in case a server never ends a list.
_MAX_LIST_PAGES = 200
#: Maximum subcategories of one category, for the same reason.
_MAX_SUBCATEGORIES = 5_000
_HEADING = re.compile(r"^(={2,6})[^\n]*\1[ \t]*$", re.MULTILINE)


def fetch(ask: Requester, extent: Mapping[str, Any]) -> None:
    """Fetch everything in the extent.

    Args:
        ask: Returns the response to a request.
        extent: `categories`: maximum pages by category; `depths`: levels of subcategories, for categories
            with more than one level.
    """
    depths = extent.get("depths", {})
    for category, most in extent["categories"].items():
        for page in members(ask, category, most, depths.get(category, 1)):
            sections(ask, page)


def members(ask: Requester, category: str, most: int, depth: int = 1) -> list[int]:
    """Return ids of the pages of a category, then of its subcategories level by level, in list order.

    Args:
        ask: Returns the response to a request.
        category: Name without `Category:`.
        most: Maximum pages.
        depth: Levels of subcategories.

    Raises:
        BuildError: There are implausibly many subcategories.
    """
    page_ids: dict[int, None] = {}
    level, seen = [category], {category}
    for below in range(depth + 1):
        last = below == depth
        following: dict[str, None] = {}
        for name in level:
            for entry in _listed(ask, name, "page" if last else "page|subcat"):
                if entry["ns"] == 0:
                    page_ids[entry["pageid"]] = None
                elif entry["ns"] == 14:
                    following[entry["title"].partition(":")[2]] = None
                if len(page_ids) == most:
                    return list(page_ids)
        level = [name for name in following if name not in seen]
        seen.update(level)
        if len(seen) > _MAX_SUBCATEGORIES:
            raise BuildError(f"Wikipedia: {category!r} has more than {_MAX_SUBCATEGORIES:,} subcategories.")
    return list(page_ids)


def sections(ask: Requester, page: int) -> list[str]:
    """Return the texts of a page between its headings, the lead first; empty for a deleted page.

    Args:
        ask: Returns the response to a request.
        page: Id of the page.

    Raises:
        BuildError: The response does not have the documented format.
    """
    query = {
        **_COMMON_PARAMS,
        "prop": "extracts|revisions",
        "explaintext": 1,
        "exsectionformat": "wiki",
        "rvprop": "ids|timestamp",
        "pageids": page,
    }
    pages = ask(_API_PATH, query, _parse, ".json")["query"].get("pages")
    if not isinstance(pages, list) or len(pages) != 1 or not isinstance(pages[0], dict):
        raise BuildError(f"Wikipedia: expected one page for id {page}, got {repr(pages)[:80]}.")
    text = pages[0].get("extract", "")
    if not isinstance(text, str):
        raise BuildError(f"Wikipedia: the extract of page {page} is not text.")
    return [part.strip() for part in _HEADING.sub("\0", text.replace("\0", " ")).split("\0") if part.strip()]


def _listed(ask: Requester, category: str, kinds: str) -> Iterator[dict[str, Any]]:
    query = {
        **_COMMON_PARAMS,
        "list": "categorymembers",
        "cmtitle": f"Category:{category}",
        "cmtype": kinds,
        "cmprop": "ids|title",
        "cmlimit": 500,
    }
    step: dict[str, str] = {}
    for _ in range(_MAX_LIST_PAGES):
        content = ask(_API_PATH, {**query, **step}, _parse, ".json")
        entries = content["query"].get("categorymembers")
        if not isinstance(entries, list) or not all(map(_is_entry, entries)):
            raise BuildError(f"Wikipedia: the list of {category!r} is not of the documented form.")
        yield from entries
        continuation = content.get("continue")
        if continuation is None:
            return
        if not isinstance(continuation, dict) or not all(
            isinstance(value, str) for value in continuation.values()
        ):
            raise BuildError(f"Wikipedia: the list of {category!r} continues in an unknown way.")
        if continuation == step:
            break
        step = dict(sorted(continuation.items()))
    raise BuildError(f"Wikipedia: the list of {category!r} does not end.")


def _is_entry(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and type(value.get("pageid")) is int
        and type(value.get("ns")) is int
        and isinstance(value.get("title"), str)
    )


def _parse(body: bytes) -> dict[str, Any]:
    content = parse_json_body(body)
    error = content.get("error")
    if error is not None:
        code = str(error.get("code")) if isinstance(error, dict) else str(error)
        if code.startswith((*_TEMPORARY_ERRORS, "internal_api_error")):
            raise TransientError(f"error {code[:60]}", _RETRY_SECONDS)
        raise BuildError(f"Wikipedia refuses a request: {repr(error)[:200]}.")
    if not isinstance(content.get("query"), dict):
        raise TransientError(f"an answer without a query: {str(content)[:60]!r}")
    return content
