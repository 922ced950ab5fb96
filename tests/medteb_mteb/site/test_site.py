"""The files of a site."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
from tests.medteb_mteb.site.conftest import QUERIES, SYSTEMS

from mar_st.errors import MarError
from medteb_mteb.report.table import ResultTable
from medteb_mteb.site import read_about, write_site
from medteb_mteb.site.tasks import is_open


class Page(HTMLParser):
    """Links, ids and table rows of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.tags, self.rows, self.in_cell = [], set(), set(), [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.add(tag)
        self.ids |= {values["id"]} if "id" in values else set()
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag != "tbody"

    def handle_data(self, data):
        if self.in_cell:
            self.rows[-1][-1] += data.strip()


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def everything(folder):
    return "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file())


def test_there_is_a_page_for_everything_and_every_link_leads_somewhere(site, pages):
    kinds = {kind: len(list((site / kind).iterdir())) for kind in ("task", "system", "pair", "query")}
    assert kinds == {"task": 2, "system": 3, "pair": 3, "query": 2 * QUERIES}
    linked = set()
    for path, page in pages.items():
        for link in page.links:
            if link.startswith(("data:", "https:")):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.is_file(), (path, link)
            assert not anchor or "," in anchor or anchor in pages[target].ids, (path, link)
            linked.add(target)
    assert {path.resolve() for path in pages} <= linked


def test_names_are_never_markup(pages):
    assert all("img" not in page.tags for page in pages.values())
    assert any(SYSTEMS[2] in row[0] for page in pages.values() for row in page.rows)


def test_texts_need_an_open_licence_or_consent(site, results, tmp_path):
    shown = everything(site)
    assert all(f"my-open的{kind}" in shown for kind in ("问题", "文献"))
    assert "my-open病区" in shown
    assert "my-closed的" not in shown
    assert "my-closed病区" not in shown
    outcome = write_site(results, tmp_path / "own", texts=True)
    assert outcome.without_texts == []
    assert all(f"my-closed的{kind}" in everything(tmp_path / "own") for kind in ("问题", "文献"))


@pytest.mark.parametrize(
    ("licence", "shown"),
    [("cc0-1.0", True), ("CC-BY-4.0", True), ("cc-by-sa-3.0", True), ("apache-2.0", True), ("mit", True),
     ("odc-by", True), ("cc-by-nc-4.0", False), ("cc-by-nd-4.0", False), ("cc-by-nc-sa-4.0", False),
     ("other", False), ("not specified", False), ("", False), (None, False)],
)  # fmt: skip
def test_which_licences_are_open(licence, shown):
    assert is_open(licence) is shown


def test_the_numbers_are_those_of_the_results(results, site, pages):
    entries = {(entry.model, entry.task): entry for entry in results.table.entries}
    first, second = results.table.models[:2]
    index = {row[0]: row for row in pages[site / "index.html"].rows}
    tasks = results.table.tasks
    for place, task in enumerate(tasks, 2):
        assert index[first][place].startswith(f"{entries[first, task].score:.3f}")
    page = next(
        page for path, page in pages.items() if path.parent.name == "pair" and "good--lab_fair" in path.name
    )
    values = [np.stack([entries[name, task].sample.values for name in (first, second)]) for task in tasks]
    for task, (one, other) in zip(tasks, values, strict=True):
        row = next(row for row in page.rows if row[0] == task and len(row) == 8)
        assert row[3] == f"{one.mean() - other.mean():+.4f}"
        assert row[6] == f"{(one > other).sum()} / {(one == other).sum()} / {(one < other).sum()}"
    cells = [row for row in page.rows if re.fullmatch(r"\d\.\d", row[0]) and len(row) == 12]
    assert sum(int(cell or 0) for row in cells for cell in row[1:]) == len(tasks) * QUERIES
    gaps = [row for row in page.rows if len(row) == 4 and row[3] in tasks]
    largest = max((one - other).max() for one, other in values)
    assert float(gaps[0][1]) - float(gaps[0][2]) == pytest.approx(largest, abs=0.002)


def test_facts_beside_the_results(results, site, tmp_path):
    page = next((site / "system").glob("*fair*")).read_text(encoding="utf-8")
    assert "medteb run -m &#39;a &amp; b&#39;" in page
    (tmp_path / "about.yaml").write_text("lab/unknown: {family: a}\n")
    with pytest.raises(MarError, match="lab/unknown"):
        read_about(tmp_path / "about.yaml", results.table.models)
    (tmp_path / "about.yaml").write_text("lab/good: {latency: 3}\n")
    with pytest.raises(MarError, match="latency"):
        read_about(tmp_path / "about.yaml", results.table.models)


def test_rankings_and_a_folder_of_data_are_enough(results, tmp_path, medteb):
    runs = [entry.ranking for entry in results.table.entries if entry.task == "my-open"]
    for number, run in enumerate(runs):
        (tmp_path / f"system{number}.trec").write_bytes(run.read_bytes())
    folder = results.folders["my-open"].layout.path
    code, out, _ = medteb(
        "site", *sorted(tmp_path.glob("*.trec")), tmp_path / "out", "--data", folder, "--title", "A<b>"
    )
    assert code == 0
    assert str(tmp_path / "out") in out
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "A&lt;b&gt;" in index
    assert len(list((tmp_path / "out" / "query").iterdir())) == QUERIES


def test_without_a_score_of_each_system_the_costs_stand_beside_the_task_that_has_most(results, tmp_path):
    table = results.table
    entries = [one for one in table.entries if (one.model, one.task) != ("lab/fair", "my-closed")]
    fewer = replace(results, table=ResultTable(table.models, table.tasks, entries))
    write_site(fewer, tmp_path / "out")
    page = Page((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
    rows = {row[0]: row for row in page.rows if len(row) > 10}
    header = next(row for row in rows.values() if "my-open" in row)
    shown = {name: row[header.index("my-open")] for name, row in rows.items() if name in SYSTEMS}
    assert shown == {one.model: f"{one.score:.4f}" for one in entries if one.task == "my-open"}


def test_only_a_site_is_replaced(results, site, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("dear")
    with pytest.raises(MarError, match="letters"):
        write_site(results, tmp_path / "letters")
    assert (tmp_path / "letters" / "letter.txt").read_text() == "dear"
    write_site(results, tmp_path / "new")
    (tmp_path / "new" / "query" / "old.html").write_text("")
    write_site(results, tmp_path / "new")
    assert not (tmp_path / "new" / "query" / "old.html").exists()


def test_equal_results_make_equal_pages(results, about, site, tmp_path):
    write_site(results, tmp_path / "again", about=about)
    assert everything(tmp_path / "again") == everything(site)
