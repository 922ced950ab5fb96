"""Raw files of the tasks whose texts an LLM writes, and a server on loopback in its place."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.medteb_mteb.curation.relatives.api_server import Apis, serving
from tests.medteb_mteb.curation.relatives.raw_samples import write_medquad
from tests.medteb_mteb.curation.relatives.written_texts import DISEASES

from medteb_mteb.curation.relatives.fetch import fetch_source


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
