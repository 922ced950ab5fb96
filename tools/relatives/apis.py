"""What the open APIs answer: pages of Wikipedia, articles of PubMed and PMC, trials, preprints.

A reader takes a function that returns the content of a response (`Responses.ask`) and an extent
(`tables.extent_of`), and yields texts in the order of the API.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from tools.relatives.fetch import TransientError
from tools.relatives.raw import clean, in_one_line, parse_xml
from tools.relatives.tables import PUBMED_IDS, STUDIES_PER_PAGE, WIKI_DEPTHS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from xml.etree import ElementTree as ET

    Ask = Callable[[str, Mapping[str, Any], Callable[[bytes], Any]], Any]

_WIKI = {"action": "query", "format": "json", "formatversion": 2, "maxlag": 5}
_HEADING = re.compile(r"^(={2,6})[^\n]*\1[ \t]*$", re.MULTILINE)
#: Maximum list pages of one category, in case a server never ends a list.
_MAX_LIST_PAGES = 200
_TRIAL_FIELDS = "NCTId|OfficialTitle|DetailedDescription|PrimaryOutcomeMeasure|PrimaryOutcomeDescription"


def _json(*keys: str) -> Callable[[bytes], Any]:
    """Return a parser of JSON objects that have some keys; an error page is temporary."""

    def parse(body: bytes) -> Any:
        try:
            content = json.loads(body)
        except ValueError:
            raise TransientError(f"a body that is not JSON and begins with {body[:40]!r}") from None
        if not isinstance(content, dict) or not set(keys) <= set(content):
            raise TransientError(f"an answer without {', '.join(keys)}: {str(content)[:80]}")
        return content

    return parse


def wiki_members(ask: Ask, category: str, most: int) -> list[int]:
    """Return ids of the pages of a category, then of its subcategories level by level, in list order."""
    pages: dict[int, None] = {}
    level, seen = [category], {category}
    depth = WIKI_DEPTHS.get(category, 1)
    for below in range(depth + 1):
        following: dict[str, None] = {}
        for name in level:
            for entry in _wiki_list(ask, name, "page" if below == depth else "page|subcat"):
                if entry["ns"] == 0:
                    pages[entry["pageid"]] = None
                elif entry["ns"] == 14:
                    following[entry["title"].partition(":")[2]] = None
                if len(pages) == most:
                    return list(pages)
        level = [name for name in following if name not in seen]
        seen.update(level)
    return list(pages)


def _wiki_list(ask: Ask, category: str, kinds: str) -> Iterator[dict[str, Any]]:
    query = {
        **_WIKI,
        "list": "categorymembers",
        "cmtitle": f"Category:{category}",
        "cmtype": kinds,
        "cmprop": "ids|title",
        "cmlimit": 500,
    }
    step: dict[str, str] = {}
    for _ in range(_MAX_LIST_PAGES):
        content = ask("/w/api.php", {**query, **step}, _json("query"))
        yield from content["query"]["categorymembers"]
        if "continue" not in content:
            return
        step = dict(sorted(content["continue"].items()))
    raise MarError(f"Wikipedia: the list of {category!r} does not end.")


def wiki_sections(ask: Ask, page: int) -> list[str]:
    """Return the texts of a page between its headings, the lead first; empty for a deleted page."""
    query = {
        **_WIKI,
        "prop": "extracts|revisions",
        "explaintext": 1,
        "exsectionformat": "wiki",
        "rvprop": "ids|timestamp",
        "pageids": page,
    }
    (one,) = ask("/w/api.php", query, _json("query"))["query"]["pages"]
    text = one.get("extract", "").replace("\0", " ")
    return [part.strip() for part in _HEADING.sub("\0", text).split("\0") if part.strip()]


def _wikipedia(ask: Ask, extent: Mapping[str, Any]) -> Iterator[list[str]]:
    for category, most in extent["categories"].items():
        for page in wiki_members(ask, category, most):
            yield wiki_sections(ask, page)


def pubmed_articles(ask: Ask, term: str, most: int) -> Iterator[tuple[str, str]]:
    """Yield title and abstract of the articles that a search finds, in its order; missing texts are empty."""
    for root in _ncbi(ask, "pubmed", term, min(most, PUBMED_IDS), "PubmedArticleSet", 200):
        for article in root.findall("PubmedArticle/MedlineCitation/Article"):
            abstract = article.findall("Abstract/AbstractText")
            yield _text(article.find("ArticleTitle")), " ".join(filter(None, map(_text, abstract)))


def pmc_texts(ask: Ask, term: str, most: int) -> Iterator[str]:
    """Yield the abstract or else the introduction of the open-access articles of a search, in its order."""
    for root in _ncbi(ask, "pmc", f"{term} AND open access[filter]", most, "pmc-articleset", 20):
        for article in root.findall("article"):
            # Graphical abstracts, teasers and the like have a type and are skipped.
            abstracts = [
                one for one in article.findall("front/article-meta/abstract") if not one.get("abstract-type")
            ]
            sections = [
                section
                for section in article.findall("body/sec")
                if section.get("sec-type", "").startswith("intro")
                or "introduction" in _text(section.find("title")).lower()
            ]
            text = next(filter(None, map(_paragraphs, [*abstracts[:1], *sections[:1]])), "")
            if text:
                yield text


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


def _ncbi(ask: Ask, database: str, term: str, most: int, root: str, size: int) -> Iterator[ET.Element]:
    """Yield sets of articles, page by page, so that a search for fewer sends the same first requests."""

    def parse(body: bytes) -> ET.Element:
        try:
            element = parse_xml(body, "the answer")
        except MarError as error:
            raise TransientError(str(error)) from None
        if element.tag != root:
            raise TransientError(f"an answer that is {element.tag[:40]!r}, not {root}")
        return element

    seen: set[str] = set()
    for start in range(0, most, 1000):
        query = {
            "db": database,
            "term": term,
            "retmode": "json",
            "retstart": start,
            "retmax": min(1000, most - start),
        }
        result = ask("/esearch.fcgi", query, _json("esearchresult"))["esearchresult"]
        ids = [one for one in dict.fromkeys(result["idlist"]) if one not in seen]
        seen.update(ids)
        for first in range(0, len(ids), size):
            some = {"db": database, "id": ",".join(ids[first : first + size]), "retmode": "xml"}
            yield ask("/efetch.fcgi", some, parse)
        if start + 1000 >= int(result["count"]) or not ids:
            return


def _pubmed(ask: Ask, extent: Mapping[str, Any]) -> Iterator[Any]:
    for term, most in extent["terms"].items():
        yield from pubmed_articles(ask, term, most)


def _pmc(ask: Ask, extent: Mapping[str, Any]) -> Iterator[Any]:
    for term, most in extent["terms"].items():
        yield from pmc_texts(ask, term, most)


def trials(ask: Ask, extent: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield studies: `officialTitle`, `detailedDescription`, `primaryOutcomes` (a line for each)."""
    count, tokens = 0, [""]
    while count < extent["studies"]:
        size = min(STUDIES_PER_PAGE, extent["studies"] - count)
        more = {"pageToken": tokens[-1]} if tokens[-1] else {}
        query = {"format": "json", "fields": _TRIAL_FIELDS, "pageSize": size, **more}
        content = ask("/studies", query, _json("studies"))
        for study in content["studies"]:
            section = study["protocolSection"]
            outcomes = section.get("outcomesModule", {}).get("primaryOutcomes", [])
            lines = (
                in_one_line(f"{one.get('measure') or ''} {one.get('description') or ''}") for one in outcomes
            )
            yield {
                "officialTitle": in_one_line(section["identificationModule"].get("officialTitle")),
                "detailedDescription": clean(section.get("descriptionModule", {}).get("detailedDescription")),
                "primaryOutcomes": "\n".join(filter(None, lines)),
            }
        count += len(content["studies"])
        token = content.get("nextPageToken")
        if token is None:
            return
        if token in tokens or not content["studies"]:
            raise MarError("ClinicalTrials.gov: the list of studies does not end.")
        tokens.append(token)


def preprints(ask: Ask, extent: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and abstract of preprints in API order; of a DOI, the version listed first."""
    dois: set[str] = set()
    cursor = 0
    while len(dois) < extent["preprints"]:
        path = f"/details/{extent['server']}/{extent['start']}/{extent['end']}/{cursor}/json"
        content = ask(path, {}, _json("messages", "collection"))
        status, page = content["messages"][0], content["collection"]
        if status.get("status") == "no posts found" or not page:
            return
        for one in page:
            if one["doi"] not in dois and len(dois) < extent["preprints"]:
                dois.add(one["doi"])
                yield in_one_line(one.get("title")), clean(one.get("abstract"))
        cursor += len(page)
        if cursor >= int(status["total"]):
            return


READERS: dict[str, Callable[[Ask, Mapping[str, Any]], Iterator[Any]]] = {
    "wikipedia": _wikipedia,
    "pubmed": _pubmed,
    "pmc": _pmc,
    "clinical-trials": trials,
    "biorxiv": preprints,
    "medrxiv": preprints,
}
