"""A server on loopback that answers as ClinicalTrials.gov, MediaWiki, NCBI and bioRxiv document it.

The contents are written for the tests. Faults are answers that a path gets before its real one.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CATEGORIES = {
    "Pain": ([(101, "Ache"), (102, "Headache"), (103, "Pain scale")], ["Pain management", "Back pain"]),
    "Pain management": ([(104, "Analgesic"), (101, "Ache")], ["Too deep"]),
    "Back pain": ([], []),
    "Too deep": ([(190, "Not reached")], []),
    "Diseases and disorders by system": ([(301, "List")], ["Eye diseases"]),
    "Eye diseases": ([(302, "Cataract")], ["Retina", "Diseases and disorders by system"]),
    "Retina": ([(303, "Retinopathy"), (302, "Cataract")], ["Below the retina"]),
    "Below the retina": ([(390, "Not reached")], []),
    "Fever": ([(201, "Fever"), (202, "Hyperthermia"), (102, "Headache"), (203, "Deleted")], []),
}
LONG = "This sentence is longer than fifty characters, as a section must be. "


def extract(page: int) -> str:
    """Text of a page: a lead, a section that is too short, and a long one below it."""
    return f"Page {page}. {LONG}\n\n\n== History ==\nShort.\n\n\n=== Later ===\nSection {page}. {LONG}\n"


#: Ids by database and term.
SEARCH_IDS = {
    ("pmc", "diagnostic"): [str(1000 + i) for i in range(45)],
    ("pmc", "therapeutic"): [str(1030 + i) for i in range(30)],
    ("pubmed", "medicine"): [str(2000 + i) for i in range(30)],
}
STUDIES = 25
#: DOI and version of what each server posted, in its order: the third one has a second version later.
POSTED = {
    "biorxiv": [(f"10.1101/{i}", 1) for i in range(7)] + [("10.1101/2", 2), ("10.1101/7", 1)],
    "medrxiv": [(f"10.1101/{i}", 1) for i in range(50, 53)],
}


def posting(server: str, doi: str, version: int) -> dict:
    """Metadata of a preprint; the one that ends in 5 has no abstract."""
    number = int(doi.rpartition("/")[2])
    return {
        "title": f"A study  of protein {number}",
        "authors": "Doe, J.; Roe, R.",
        "author_corresponding": "Jane Doe",
        "author_corresponding_institution": "University",
        "doi": doi,
        "date": f"2018-01-{number % 28 + 1:02}",
        "version": str(version),
        "type": "new results",
        "license": "cc_by",
        "category": "neuroscience",
        "jatsxml": f"https://www.biorxiv.org/content/early/{doi}.source.xml",
        "abstract": "" if number % 10 == 5 else f"Protein {number} binds,\nversion {version}.",
        "published": "NA",
        "server": server,
    }


def study(number: int) -> dict:
    """A study; every fifth has no description."""
    section = {
        "identificationModule": {
            "nctId": f"NCT{number:08}",
            "officialTitle": f"Trial  {number} of drug {number % 7}",
        },
        "outcomesModule": {
            "primaryOutcomes": [
                {"measure": f"Pain {number}", "description": f"On scale {number % 3}"},
                {"measure": "Survival"},
            ]
        },
    }
    if number % 5:
        section["descriptionModule"] = {"detailedDescription": f"We give drug {number % 7}.\n\nArm {number}."}
    return {"protocolSection": section}


@dataclass
class Answer:
    """What goes over the wire: `cut` bytes of the body are not sent."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0


@dataclass
class Apis:
    """The four APIs.

    Attributes:
        faults: By path, answers that are given before the real one, in order.
        requests: Path with query, and the headers, of every request.
    """

    faults: dict[str, list[Answer]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    page: int = 2
    url: str = ""
    zipped: bool = False
    before: Callable[[int], None] = lambda _: None

    def answer(self, target: str) -> Answer:
        """The answer to a request."""
        path, query = urlsplit(target).path, {k: v[0] for k, v in parse_qs(urlsplit(target).query).items()}
        if self.faults.get(path):
            return self.faults[path].pop(0)
        if path == "/studies":
            return _json(self.studies(query))
        if path == "/w/api.php":
            return _json(self.listed(query) if "list" in query else self.wiki_page(query))
        if path == "/esearch.fcgi":
            return _json(self.search(query))
        if path == "/efetch.fcgi":
            return Answer(articles(query["db"], query["id"].split(",")).encode())
        if path.startswith("/details/"):
            return _json(self.details(*path.split("/")[2:]))
        return Answer(b"not here", 404)

    def details(self, server: str, start: str, end: str, cursor: str, form: str) -> dict:
        """A page of postings, three at a time; counts are numbers, totals text, as on the real server."""
        assert (start, end, form) == ("2018-01-01", "2022-12-20", "json")
        posted, first = POSTED[server], int(cursor)
        page = [posting(server, *one) for one in posted[first : first + 3]]
        if not page:
            return {"messages": [{"status": "no posts found"}], "collection": []}
        message = {
            "status": "ok",
            "interval": f"{start}:{end}",
            "cursor": cursor,
            "count": len(page),
            "count_new_papers": str(len({doi for doi, _ in posted})),
            "total": str(len(posted)),
        }
        return {"messages": [message], "collection": page}

    def studies(self, query: dict[str, str]) -> dict:
        """A page of studies; tokens are opaque."""
        assert query["format"] == "json"
        assert "OfficialTitle" in query["fields"].split("|")
        start = int(query.get("pageToken", "t0")[1:])
        size = min(int(query["pageSize"]), 10)
        content: dict = {"studies": [study(i) for i in range(start, min(start + size, STUDIES))]}
        if start + size < STUDIES:
            content["nextPageToken"] = f"t{start + size}"
        return content

    def listed(self, query: dict[str, str]) -> dict:
        """Members of a category, two at a time."""
        assert (query["action"], query["formatversion"], query["maxlag"]) == ("query", "2", "5")
        pages, below = CATEGORIES.get(query["cmtitle"].partition(":")[2], ([], []))
        entries = [{"pageid": i, "ns": 0, "title": title} for i, title in pages]
        if "subcat" in query["cmtype"]:
            entries += [{"pageid": 900 + len(t), "ns": 14, "title": f"Category:{t}"} for t in below]
        start = int(query.get("cmcontinue", "page|0").partition("|")[2])
        content: dict = {
            "batchcomplete": True,
            "query": {"categorymembers": entries[start : start + self.page]},
        }
        if start + self.page < len(entries):
            content["continue"] = {"cmcontinue": f"page|{start + self.page}", "continue": "-||"}
        return content

    def wiki_page(self, query: dict[str, str]) -> dict:
        """Text of one page; 203 is gone."""
        page = int(query["pageids"])
        if page == 203:
            return {"batchcomplete": True, "query": {"pages": [{"pageid": page, "missing": True}]}}
        revision = {"revid": page * 10, "parentid": 0, "timestamp": "2026-01-01T00:00:00Z"}
        entry = {
            "pageid": page,
            "ns": 0,
            "title": f"P{page}",
            "revisions": [revision],
            "extract": extract(page),
        }
        return {"batchcomplete": True, "query": {"pages": [entry]}}

    def search(self, query: dict[str, str]) -> dict:
        """Ids of articles."""
        term = query["term"].removesuffix(" AND open access[filter]")
        matches = SEARCH_IDS.get((query["db"], term), [])
        start = int(query["retstart"])
        ids = matches[start : start + int(query["retmax"])]
        return {
            "header": {"type": "esearch", "version": "0.3"},
            "esearchresult": {
                "count": str(len(matches)),
                "retmax": str(len(ids)),
                "retstart": str(start),
                "idlist": ids,
            },
        }


#: The declarations that NCBI puts before its answers.
PUBMED_TYPE = (
    '<?xml version="1.0" ?>\n'
    '<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2026//EN" '
    '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_260101.dtd">\n'
)
PMC_TYPE = (
    '<?xml version="1.0"  ?><!DOCTYPE pmc-articleset PUBLIC "-//NLM//DTD ARTICLE SET 2.0//EN" '
    '"https://dtd.nlm.nih.gov/ncbi/pmc/articleset/nlm-articleset-2.0.dtd">'
)


def articles(database: str, ids: list[str]) -> str:
    """A set of articles as efetch gives it."""
    if database == "pubmed":
        return f"{PUBMED_TYPE}<PubmedArticleSet>{''.join(map(_pubmed, ids))}</PubmedArticleSet>"
    return f"{PMC_TYPE}<pmc-articleset>{''.join(map(_pmc, ids))}</pmc-articleset>"


def _pubmed(key: str) -> str:
    abstract = (
        f"<AbstractText Label='AIM'>Aim {key}.</AbstractText><AbstractText>Found &lt; {key}.</AbstractText>"
    )
    article = f"<ArticleTitle>Title <i>of</i> {key}</ArticleTitle><Abstract>{abstract}</Abstract>"
    citation = f"<PMID Version='1'>{key}</PMID><Article>{article}</Article>"
    return f"<PubmedArticle><MedlineCitation>{citation}</MedlineCitation></PubmedArticle>"


def _pmc(key: str) -> str:
    """An article: every third has no abstract but an introduction, every twenty-first has neither."""
    abstract = (
        '<abstract abstract-type="graphical"><p>A picture.</p></abstract>'
        f"<abstract><sec><title>Aim</title><p>Abstract <bold>of</bold> {key}.</p></sec></abstract>"
    )
    introduction = f"<sec><title>1. Introduction</title><p>Intro {key}.</p></sec>"
    body = f'<body><sec sec-type="methods"><p>We did.</p></sec>{introduction}</body>'
    front = "" if int(key) % 3 == 0 else abstract
    text = "" if int(key) % 21 == 0 else body
    return f"<article><front><article-meta>{front}</article-meta></front>{text}</article>"


def _json(content: dict) -> Answer:
    return Answer(json.dumps(content).encode(), headers={"Content-Type": "application/json"})


@contextmanager
def serving(apis: Apis) -> Iterator[Apis]:
    """Serve while the context lasts; `apis.url` is the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            apis.requests.append((self.path, dict(self.headers)))
            apis.before(len(apis.requests))
            answer = apis.answer(self.path)
            body, headers = answer.body, dict(answer.headers)
            if apis.zipped:
                body, headers = gzip.compress(body), {**headers, "Content-Encoding": "gzip"}
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # the client may leave, or be killed
                self.wfile.write(body[: len(body) - answer.cut])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    apis.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield apis
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def twice(apis: Apis) -> dict[str, int]:
    """Requests that were made more than once."""
    return {
        target: count for target, count in Counter(target for target, _ in apis.requests).items() if count > 1
    }
