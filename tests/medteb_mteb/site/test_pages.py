"""The pages in a real browser, opened from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.mar_st.serve.browser import NO_BROWSER, open_page

pytestmark = [NO_BROWSER, pytest.mark.thorough]
expect = pytest.importorskip("playwright.sync_api").expect
WIDTHS = [380, 1280]


def one_of_each(site):
    return [
        "index.html",
        *(
            str(next((site / kind).iterdir()).relative_to(site))
            for kind in ("task", "system", "pair", "query")
        ),
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(site, visit, width):
    for path in one_of_each(site):
        page = visit(path, width=width, locale="en-US")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        for chart in page.locator(".chart").all():
            expect(chart.locator("svg")).to_be_visible()


@pytest.mark.parametrize("width", WIDTHS)
def test_sort_and_filter(visit, width):
    page = visit("index.html", width=width, locale="en-US")
    names = page.locator("#matrix tbody th:visible")
    expect(names).to_have_count(3)
    header = page.locator("#matrix thead th").nth(2)
    scores = page.locator("#matrix tbody td:nth-child(3)")
    header.locator("button").click()
    expect(header).to_have_attribute("aria-sort", "descending")
    shown = [float(text[:5]) for text in scores.all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    header.locator("button").click()
    assert [float(text[:5]) for text in scores.all_inner_texts()] == sorted(shown)
    if width < 900:
        page.click("#filters summary")
    page.fill("[name=name]", "GOOD")
    assert names.all_inner_texts() == ["lab/good"]
    expect(page.locator("#shown")).to_contain_text("1 of 3")
    page.fill("[name=name]", "")
    page.fill("[name=online]", "10")
    assert set(names.all_inner_texts()) == {"lab/good", "lab/fair"}
    page.fill("[name=online]", "")
    page.fill("[name=latency]", "3")
    assert names.all_inner_texts() == ["lab/fair"]
    page.fill("[name=latency]", "")
    page.select_option("[name=trained]", "zero-shot")
    assert "lab/fair" not in names.all_inner_texts()
    page.select_option("[name=licence]", "apache-2.0")
    assert names.all_inner_texts() == ["lab/good"]


def test_both_languages(site, visit):
    page = visit("index.html")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(page.locator("h1")).to_have_text("评测结果")
    page.click("#language")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.locator("h1")).to_have_text("Results")
    page.locator("#matrix tbody a").first.click()
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_two_rankings_side_by_side(site, visit):
    query = next((site / "query").iterdir()).relative_to(site)
    page = visit(str(query))
    lists = page.locator(".ranking:visible")
    expect(lists).to_have_count(2)
    page.select_option("#choice [name=other]", "2")
    expect(lists.nth(1).locator("h3")).to_contain_text("<img")
    address = f"{page.url}#1,2"
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("#choice select").evaluate_all("all => all.map((one) => one.value)") == ["1", "2"]


def test_pages_work_without_javascript(site, browser):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 380, "height": 800})
    try:
        page = context.new_page()
        for path in one_of_each(site):
            page.goto((site / path).as_uri())
            assert page.locator("html").get_attribute("lang") == "en"
            assert page.locator("form:visible").count() == 0
            if path.startswith("query"):
                expect(page.locator(".ranking:visible")).to_have_count(3)
            else:
                expect(page.locator("table").first).to_be_visible()
    finally:
        context.close()


def axe_file():
    """The script of axe-core, which is not part of this project: `npm install axe-core`, or `$AXE_CORE`."""
    given = os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js")
    return Path(given) if Path(given).is_file() else None


@pytest.mark.skipif(axe_file() is None, reason="needs axe-core: npm install axe-core, or AXE_CORE=axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(site, browser, scheme):
    for width in WIDTHS:
        for path in one_of_each(site):
            with open_page(browser, (site / path).as_uri(), width=width, scheme=scheme) as page:
                page.add_script_tag(path=axe_file())
                found = page.evaluate(
                    "axe.run(document, {preload: false}).then((result) => result.violations)"
                )
                assert not found, (path, width, [(one["id"], one["nodes"][0]["html"]) for one in found])
