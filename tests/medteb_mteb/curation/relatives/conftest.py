"""Raw files and sets built from them, and a server on loopback in the place of an LLM."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.medteb_mteb.curation.relatives.api_server import Apis, serving
from tests.medteb_mteb.curation.relatives.raw_samples import SOURCES, WRITERS, write_medquad
from tests.medteb_mteb.curation.relatives.written_texts import DISEASES

from medteb_mteb.curation.relatives import build_set
from medteb_mteb.curation.relatives.fetch import fetch_source
from medteb_mteb.folders import read_folder


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A frozen folder per source, and MedQuAD."""
    folder = tmp_path_factory.mktemp("raw")
    with serving(Apis()) as apis:
        for name, tasks in (("wikipedia", [DISEASES]), ("pubmed", []), ("biorxiv", []), ("medrxiv", [])):
            options = {"tasks": tasks, "contact": "me@example.org", "per_second": 100}
            fetch_source(name, folder / name, address=apis.url, **options)
    write_medquad(folder / "medquad")
    return folder


@pytest.fixture
def endpoint():
    """Starts a server: `endpoint(function, **faults)` -> (its account, an LLM at it)."""
    from fault_server import FaultEndpoint
    from llm_server import llm_at, running

    with ExitStack() as stack:

        def start(answer, **options):
            server = FaultEndpoint(answer=answer, **options)
            return server, llm_at(stack.enter_context(running(server)))

        yield start


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds a sample set under MEDTEB_DATA and returns its content."""

    def build(name, **options):
        WRITERS[name](tmp_path / "raw" / name)
        edition, _ = build_set(name, tmp_path / "raw" / name, tmp_path / "data", options)
        monkeypatch.setenv("MEDTEB_DATA", str(tmp_path / "data"))
        return edition, read_folder(edition.path).retrieval

    return build


@pytest.fixture
def real():
    """Raw files of the sources: `real(*places)`; the test is skipped without them."""

    def find(*places):
        for place in places:
            if not (SOURCES / place).exists():
                pytest.skip(f"no raw files of the sources at {SOURCES / place}")
        return [SOURCES / place for place in places]

    return find
