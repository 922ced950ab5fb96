"""The search page in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.mar_st.serve.browser import open_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
KEY = "a-key-of-enough-characters"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)")


@pytest.fixture
def visit():
    pages = []

    def open_at(url, **how):
        page = open_page(CHROMIUM, url, **how)
        pages.append(page)
        return page.__enter__()

    yield open_at
    for page in pages:
        page.__exit__(None, None, None)


def ask(page, query):
    page.fill("#query", query)
    page.press("#query", "Enter")
    expect(page.locator("#status")).to_contain_text("毫秒")


def test_a_search_shows_hits_with_scores_legs_marks_and_time(serve, visit):
    server = serve()
    page = visit(server.url)
    expect(page.locator("#facts")).to_contain_text("6 篇")
    ask(page, "高血压少吃盐")
    hits = page.locator("#hits li")
    assert hits.count() == 6
    first = hits.first.inner_text()
    assert "高血压少吃盐" in first
    assert "得分" in first
    assert "向量 第 1" in first
    assert "关键词 第 1" in first  # hybrid is on where the index has words
    assert "department：" in first
    assert hits.first.locator(".snippet mark").all_inner_texts() == ["高血压少吃盐"]
    assert page.locator("#status").get_attribute("role") == "status"
    # No hybrid search, fewer hits, and a filter.
    page.click("#more summary")
    page.uncheck("#hybrid")
    page.select_option("#k", "5")
    page.fill("#where", "department=内科")
    ask(page, "头疼")
    expect(hits).to_have_count(3)
    assert "关键词" not in hits.first.inner_text()
    page.fill("#where", "科室=内科")
    page.press("#query", "Enter")
    expect(page.locator("#status.bad")).to_contain_text("没有字段")


def test_text_of_documents_is_never_markup(serve, visit, tmp_path):
    from tests.mar_st.serve.servers import make_index

    text = "<img src=x onerror=document.title='坏'><b>头疼</b>"
    server = serve(make_index(tmp_path, [text, "感冒"]))
    page = visit(server.url)
    ask(page, "头疼")
    assert text in page.inner_text("#hits")
    assert page.locator("#hits img").count() == 0
    assert page.title() == "医学文献检索"


def test_a_key_is_asked_for(serve, visit):
    server = serve(api_keys=[KEY])
    page = visit(server.url, refusals=True)
    page.fill("#query", "头疼")
    page.press("#query", "Enter")
    expect(page.locator("#key")).to_be_focused()
    expect(page.locator("#status.bad")).to_contain_text("401")
    page.fill("#key", KEY)
    ask(page, "头疼")
    assert page.locator("#hits li").count() == 6


def test_on_a_phone_nothing_is_cut_off_and_controls_are_labelled(serve, visit):
    server = serve()
    page = visit(server.url, width=360, height=740)
    ask(page, "失眠早点睡")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.click("#more summary")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, button')].filter(e => e.offsetParent &&"
        " !(e.labels && e.labels.length) && !e.textContent.trim()).length"
    )
    assert unnamed == 0
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    # The whole page works by keyboard: the query has the focus at the start.
    assert page.locator("button[type=submit]").bounding_box()["height"] >= 44


def test_the_page_of_the_api(serve, visit):
    page = visit(f"{serve().url}/docs")
    assert page.locator("section").count() >= 6
    assert "/v1/embeddings" in page.inner_text("main")


def test_the_screenshot_of_the_docs_is_there():
    path = Path(__file__).parents[3] / "docs" / "how-to" / "serve.png"
    assert path.read_bytes().startswith(b"\x89PNG")
