"""PubMed and PubMed Central through NCBI's E-utilities: esearch for ids, efetch for articles."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch.web import TransientError, parse_json_body
from medteb_mteb.curation.relatives.raw import in_one_line, parse_xml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from xml.etree import ElementTree as ET

    from medteb_mteb.curation.relatives.fetch.responses import Requester

__all__ = ["OFFICIAL_URL", "fetch_pmc", "fetch_pubmed", "pmc_texts", "pubmed_articles"]

OFFICIAL_URL = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
#: Ids per search request, and articles per fetch request; those of PubMed Central may have full text.
_IDS_PER_SEARCH, _ARTICLES_PER_FETCH = 1000, {"pubmed": 200, "pmc": 20}
#: NCBI returns at most this number of PubMed ids per search.
MAX_PUBMED_IDS = 9_999
#: A declaration of an external document type, which is never read.
_DOCTYPE = re.compile(
    rb"""\A(\s*<\?xml[^>]*\?>)?\s*<!DOCTYPE\s+[\w:.-]+(\s+(PUBLIC\s+"[^"]*"\s+|SYSTEM\s+)"[^"]*")?\s*>"""
)


def fetch_pubmed(ask: Requester, extent: Mapping[str, Any]) -> None:
    """Fetch everything in the extent.

    Args:
        ask: Returns the response to a request.
        extent: `terms`: maximum articles by search term.
    """
    for term, most in extent["terms"].items():
        for _ in pubmed_articles(ask, term, most):
            pass


def fetch_pmc(ask: Requester, extent: Mapping[str, Any]) -> None:
    """Fetch everything in the extent.

    Args:
        ask: Returns the response to a request.
        extent: `terms`: maximum articles by search term.
    """
    for term, most in extent["terms"].items():
        for _ in pmc_texts(ask, term, most):
            pass


def pubmed_articles(ask: Requester, term: str, most: int) -> Iterator[tuple[str, str]]:
    """Yield title and abstract of the articles that a search finds, in its order; missing texts are empty.

    Args:
        ask: Returns the response to a request.
        term: The search term.
        most: Maximum articles.
    """
    for root in _articles(ask, "pubmed", term, min(most, MAX_PUBMED_IDS), "PubmedArticleSet"):
        for article in root.findall("PubmedArticle/MedlineCitation/Article"):
            title, abstract = article.find("ArticleTitle"), article.findall("Abstract/AbstractText")
            yield _text(title), " ".join(filter(None, map(_text, abstract)))


def pmc_texts(ask: Requester, term: str, most: int) -> Iterator[str]:
    """Yield the abstract or else the introduction of the open-access articles of a search, in its order.

    Articles with neither are left out.

    Args:
        ask: Returns the response to a request.
        term: The search term.
        most: Maximum articles.
    """
    for root in _articles(ask, "pmc", f"{term} AND open access[filter]", most, "pmc-articleset"):
        for article in root.findall("article"):
            text = _abstract(article) or _introduction(article)
            if text:
                yield text


def _abstract(article: ET.Element) -> str:
    """Return the abstract. Graphical abstracts, teasers and the like have a type and are skipped."""
    for abstract in article.findall("front/article-meta/abstract"):
        if "abstract-type" not in abstract.attrib:
            return _paragraphs(abstract)
    return ""


def _introduction(article: ET.Element) -> str:
    for section in article.findall("body/sec"):
        heading = _text(section.find("title")).lower()
        if section.get("sec-type", "").startswith("intro") or "introduction" in heading:
            return _paragraphs(section)
    return ""


def _paragraphs(part: ET.Element) -> str:
    """Return the text of all paragraphs; one inside another, as in a list, is read once."""
    texts, waiting = [], [part]
    while waiting:
        element = waiting.pop()
        if element.tag == "p":
            texts.append(_text(element))
        else:
            waiting.extend(reversed(element))
    return " ".join(filter(None, texts))


def _text(element: ET.Element | None) -> str:
    return "" if element is None else in_one_line("".join(element.itertext()))


def _search(ask: Requester, database: str, term: str, most: int) -> Iterator[list[str]]:
    """Yield ids page by page, without those of earlier pages."""
    seen: set[str] = set()
    start = 0
    while start < most:
        query = {
            "db": database,
            "term": term,
            "retmode": "json",
            "retstart": start,
            "retmax": min(_IDS_PER_SEARCH, most - start),
        }
        result = ask("/esearch.fcgi", query, _parse_search, ".json")
        ids = [one for one in dict.fromkeys(result["idlist"]) if one not in seen]
        yield ids
        seen.update(ids)
        start += _IDS_PER_SEARCH
        if start >= int(result["count"]) or not ids:
            return


def _articles(ask: Requester, database: str, term: str, most: int, root: str) -> Iterator[ET.Element]:
    def parse(body: bytes) -> ET.Element:
        return _parse_articles(body, root)

    size = _ARTICLES_PER_FETCH[database]
    # Page by page, so that a search for fewer articles sends the same first requests.
    for ids in _search(ask, database, term, most):
        for first in range(0, len(ids), size):
            query = {"db": database, "id": ",".join(ids[first : first + size]), "retmode": "xml"}
            yield ask("/efetch.fcgi", query, parse, ".xml")


def _parse_search(body: bytes) -> dict[str, Any]:
    result = parse_json_body(body).get("esearchresult")
    if not isinstance(result, dict) or "ERROR" in result:
        raise TransientError(f"a search without a result: {body[:80].decode('utf-8', 'replace')!r}")
    ids, count = result.get("idlist"), result.get("count")
    if not isinstance(ids, list) or not all(isinstance(one, str) and one.isdecimal() for one in ids):
        raise BuildError(f"NCBI: a search gives no list of numbers: {repr(ids)[:80]}.")
    if not isinstance(count, str) or not count.isdecimal() or len(count) > 18:
        raise BuildError(f"NCBI: a search gives no count: {repr(count)[:80]}.")
    return result


def _parse_articles(body: bytes, expected: str) -> ET.Element:
    """Return the root of a set of articles. A document type is ignored unless it declares entities.

    Raises:
        TransientError: The body is something else or was cut.
        BuildError: The body declares entities.
    """
    body = _DOCTYPE.sub(b"", body, count=1)
    if b"<!ENTITY" in body or b"<!DOCTYPE" in body[:4096]:
        raise BuildError("NCBI: an answer declares entities of its own; it is refused.")
    try:
        root = parse_xml(body, "the answer")
    except BuildError as error:
        raise TransientError(str(error)) from None
    if root.tag != expected:
        raise TransientError(f"an answer that is {root.tag[:40]!r}, not {expected}: {_text(root)[:80]!r}")
    return root
