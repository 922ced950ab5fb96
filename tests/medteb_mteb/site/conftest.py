"""A small site: three systems on two tasks, one of which has a licence that closes its texts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import write_jsonl, write_judged
from tests.mar_st.serve.browser import chromium, open_page
from tests.medteb_mteb.compare.results import write_result

from mar_st.data.trec import write_run
from medteb_mteb.compare.read import read_results
from medteb_mteb.folders.content import read_folder
from medteb_mteb.measures import score_queries
from medteb_mteb.site import read_about, write_site

QUERIES, DOCUMENTS = 40, 60
#: The last one tries to be markup.
SYSTEMS = ["lab/good", "lab/fair", "lab/<img src=x onerror=alert(1)>"]
LICENCES = {"my-open": "cc-by-4.0", "my-closed": "cc-by-nc-4.0"}


def write_data(folder, licence):
    """Queries q0, q1, ...; the document with the same number answers, the next one is judged not relevant."""
    rows = [(f"q{number}", f"d{number}", f"d{number + 1}") for number in range(QUERIES)]
    name = folder.name
    write_jsonl(folder / "corpus.jsonl", [
        {"_id": f"d{number}", "title": "", "text": f"{name}的文献<{number}>"} for number in range(DOCUMENTS)
    ])  # fmt: skip
    write_jsonl(folder / "queries.jsonl", [
        {"_id": query, "text": f"{name}的问题{'啊' * place}{query}", "ward": f"{name}病区{place % 2}"}
        for place, (query, _, _) in enumerate(rows)
    ])  # fmt: skip
    judged = [((query, right, 1), (query, wrong, 0)) for query, right, wrong in rows]
    write_judged(folder, [pair for both in judged for pair in both])
    (folder / "README.md").write_text(f"---\nlicense: {licence}\n---\n")


def write_results(root, folders):
    """Random rankings, worse from system to system, in the layout of `medteb run --trec`."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(SYSTEMS):
        facts = {"n_parameters": 10 ** (number + 6), "embed_dim": 64 * (number + 1)}
        facts["license"] = "mit" if number else "apache-2.0"
        facts["training_datasets"] = ["my-open"] if number == 1 else []
        for folder in folders:
            content = read_folder(folder)
            data = content.retrieval
            run = {}
            for row in data.queries:
                scores = rng.random(DOCUMENTS)
                scores[int(row["id"][1:])] += 1 - 0.35 * number
                run[row["id"]] = {f"d{document}": float(score) for document, score in enumerate(scores)}
            values = {query: one.ndcg for query, one in score_queries(data.qrels, data.judged, run).items()}
            of = {"data": content.revision, "revision": f"rev{number}", "ids": list(values)}
            write_result(root, name, folder.name, list(values.values()), **of, **facts)
            ranking = root / "trec" / name.replace("/", "__") / f"rev{number}" / f"{folder.name}.trec"
            ranking.parent.mkdir(parents=True, exist_ok=True)
            write_run(ranking, run)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    folders = [root / "data" / name for name in LICENCES]
    for folder in folders:
        write_data(folder, LICENCES[folder.name])
    write_results(root, folders)
    return read_results([root], data=folders)


@pytest.fixture(scope="session")
def about(tmp_path_factory, results):
    path = tmp_path_factory.mktemp("about") / "about.yaml"
    path.write_text(
        "lab/good: {latency_ms: 3.5, family: ladder, parameters_online: 500000}\n"
        "lab/fair: {latency_ms: 1, family: ladder, command: medteb run -m 'a & b'}\n"
    )
    return read_about(path, results.table.models)


@pytest.fixture(scope="session")
def site(tmp_path_factory, results, about):
    out = tmp_path_factory.mktemp("site") / "out"
    write_site(results, out, about=about)
    return out


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser, site):
    """Opens pages of the site from their files, and fails on console errors and requests elsewhere."""
    from contextlib import ExitStack

    with ExitStack() as pages:
        yield lambda path, **how: pages.enter_context(open_page(browser, (site / path).as_uri(), **how))
