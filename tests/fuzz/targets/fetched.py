"""Answers of public APIs, and the list of a folder of such answers."""

from __future__ import annotations

import hashlib
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import entrez, trials, wikipedia
from medteb_mteb.curation.relatives.fetch.responses import FROZEN_FILE, address_of, read_frozen
from medteb_mteb.curation.relatives.fetch.web import TransientError
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STUDY = {
    "protocolSection": {
        "identificationModule": {"nctId": "NCT1", "officialTitle": "A study"},
        "descriptionModule": {"detailedDescription": "Why\n\nhow"},
        "outcomesModule": {"primaryOutcomes": [{"measure": "Pain", "description": "0 to 10"}]},
    }
}
_PUBMED = """<?xml version="1.0" ?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 2025//EN" "https://dtd.nlm.nih.gov/x.dtd">
<PubmedArticleSet><PubmedArticle><MedlineCitation><Article>
<ArticleTitle>On <i>pain</i></ArticleTitle><Abstract><AbstractText Label="A">One.</AbstractText></Abstract>
</Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"""
_PMC = """<pmc-articleset><article>
<front><article-meta><abstract><p>An abstract.</p></abstract></article-meta></front>
<body><sec sec-type="intro"><title>Introduction</title><p>Once.</p></sec></body>
</article></pmc-articleset>"""
_MEMBERS = [{"pageid": 1, "ns": 0, "title": "Pain"}, {"pageid": 2, "ns": 14, "title": "Category:x"}]
_SEEDS: dict[str, Any] = {
    "studies": {"studies": [_STUDY, _STUDY], "nextPageToken": "t"},
    "members": {
        "query": {"categorymembers": _MEMBERS},
        "continue": {"cmcontinue": "page|1", "continue": "-||"},
    },
    "sections": {"query": {"pages": [{"pageid": 1, "extract": "Lead.\n\n== A ==\nText.\n=== B ===\nMore."}]}},
    "search": {"esearchresult": {"count": "2", "idlist": ["1", "2"]}},
    "pubmed": _PUBMED,
    "pmc": _PMC,
}
_WORDS = (
    b"<!ENTITY x 'y'>", b"&x;", b"<!DOCTYPE a [", b"]>", b"<article>", b"</p>", b"<p>", b"nextPageToken",
    b"continue", b'"error": {"code": "maxlag"}', b"== x ==", b"ERROR", b"<?xml version='1.0'?>",
)  # fmt: skip
_ADDRESS = address_of(trials.OFFICIAL_URL, "/studies", {})


def _made(kind: str, body: bytes) -> Iterator[Any]:
    """Process one changed answer; the other answers of the same source are valid."""

    def ask(path: str, _params: Any, parse: Any, _suffix: str) -> Any:
        if path == "/esearch.fcgi" and kind != "search":
            return parse(json.dumps(_SEEDS["search"]).encode())
        if path == "/efetch.fcgi" and kind == "search":
            return parse(_PUBMED.encode())
        return parse(body)

    if kind == "studies":
        yield from trials.studies(ask, {"studies": 5, "page": 2})
    elif kind == "members":
        yield from wikipedia.members(ask, "Pain", 3)
    elif kind == "sections":
        yield from wikipedia.sections(ask, 1)
    elif kind == "pmc":
        yield from entrez.pmc_texts(ask, "pain", 3)
    else:
        yield from entrez.pubmed_articles(ask, "pain", 3)


def _frozen(folder: Path) -> dict[str, Any]:
    """Write a response; returns the list of it."""
    (folder / "responses").mkdir()
    body = json.dumps(_SEEDS["studies"]).encode()
    name = f"{hashlib.sha256(_ADDRESS.encode()).hexdigest()[:32]}.json"
    (folder / "responses" / name).write_bytes(body)
    return {
        "format": "medteb-fetched",
        "version": 1,
        "source": "clinical-trials",
        "extent": {"studies": 3, "page": 2},
        "asked": trials.OFFICIAL_URL,
        "responses": [
            {"url": _ADDRESS, "file": name, "sha256": hashlib.sha256(body).hexdigest(), "day": "2026-01-01"}
        ],
    }


def prepare(folder: Path) -> Target:
    """Set up the target: answers of public APIs, of which the first line says which, and a list of them."""
    listed = _frozen(folder)

    def check(data: bytes) -> str:
        first, _, body = data.partition(b"\n")
        kind = first.decode("utf-8", "replace")
        if kind == "list":
            (folder / FROZEN_FILE).write_bytes(body)
            there = read_frozen(folder / FROZEN_FILE, "clinical-trials", trials.OFFICIAL_URL)
            content = there.ask("/studies", {}, lambda response: response, ".json")
            return f"{there.count} responses, {there.most('studies')} studies, {len(content)} bytes"
        made = list(islice(_made(kind, body), 1000))
        texts = [text for one in made for text in (one.values() if isinstance(one, dict) else [one])]
        if kind == "members":
            assert all(type(page) is int for page in made)
        elif kind in ("studies", "sections", "pmc"):
            assert all(isinstance(text, str) for text in texts)
        return f"{kind}: {len(made)}"

    seeds = [
        f"{kind}\n{one if isinstance(one, str) else json.dumps(one)}".encode() for kind, one in _SEEDS.items()
    ]
    return Target(
        [*seeds, b"list\n" + json.dumps(listed).encode()],
        check,
        (BuildError, TransientError),
        named=True,
        words=_WORDS,
    )
