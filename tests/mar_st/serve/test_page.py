"""The search page in a real browser."""

from __future__ import annotations

import pytest

from tests.mar_st.serve.browser import NO_BROWSER, ask
from tests.mar_st.serve.fakes import KEY, make_index

pytestmark = [NO_BROWSER, pytest.mark.slow]
expect = pytest.importorskip("playwright.sync_api").expect


def test_a_search_shows_hits_with_marks_and_details(serve, visit):
    page = visit(serve(title="本院<文献>").url)
    expect(page.locator("h1")).to_have_text("本院<文献>")
    assert page.title() == "本院<文献>"
    expect(page.locator("#facts")).to_contain_text("6 篇")
    example = page.locator("#examples button").first
    title = example.inner_text()
    example.click()
    expect(page.locator("#query")).to_have_value(title)
    expect(page.locator("#examples")).to_be_hidden()
    page.click("#more summary")
    page.check("#hybrid")
    ask(page, "高血压可以少吃盐吗")
    hits = page.locator("#hits li")
    expect(hits).to_have_count(6)
    for part in ("高血压少吃盐", "department："):
        assert part in hits.first.inner_text()
    assert "得分" not in hits.first.inner_text()
    hits.first.locator("summary").click()
    for part in ("得分", "向量 第", "关键词 第 1", "d2"):
        assert part in hits.first.inner_text()
    assert hits.first.locator(".snippet mark").all_inner_texts() == ["高血压少吃盐"]
    page.uncheck("#hybrid")
    page.select_option("#k", "5")
    page.fill("#where", "department=内科")
    ask(page, "头疼")
    expect(hits).to_have_count(3)
    assert "关键词" not in hits.first.inner_text()
    page.fill("#where", "科室=内科")
    page.press("#query", "Enter")
    expect(page.locator("#status.bad")).to_contain_text("没有字段")
    page.go_back()
    expect(hits).to_have_count(3)
    page.go_back()
    expect(hits).to_have_count(6)
    expect(page.locator("#hybrid")).to_be_checked()


def test_untitled_hits_show_their_beginning_and_equal_ones_are_one(serve, visit, tmp_path):
    texts = ["多喝水，早点休息。一周后复查。", "多喝水，早点休息。一周后复查。", "少吃盐"]
    page = visit(serve(make_index(tmp_path, texts, titles=False)).url)
    ask(page, "多喝水")
    expect(page.locator("#hits li")).to_have_count(2)
    equal = page.locator("#hits li", has_text="多喝水").first
    expect(equal.locator("h2")).to_have_text("多喝水，早点休息。…")
    expect(equal).to_contain_text("另有 1 条")
    page.goto(f"{page.url}&where={'%20' * 30_000}")
    ask(page, "少吃盐")


def test_documents_open_in_full_and_are_never_markup(serve, visit, tmp_path):
    text = "<img src=x onerror=document.title='坏'><b>头疼</b>" + "长" * 500
    page = visit(serve(make_index(tmp_path, [text, "感冒"], prefix="a/../&#?=% ")).url)
    ask(page, "头疼")
    link = page.locator("#hits a", has_text="标题a/../&#?=% 0")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#document-text")).to_have_text(text)
    address = page.url
    page.keyboard.press("Escape")
    expect(page.locator("#document")).to_be_hidden()
    expect(link).to_be_focused()
    assert page.locator("#hits img").count() == 0
    assert page.title() == "医学文献检索"
    page.goto(address)
    expect(page.locator("#document-text")).to_have_text(text)


def test_the_page_asks_for_a_key_and_speaks_english(serve, visit, monkeypatch):
    monkeypatch.setenv("MAR_API_KEYS", KEY)
    page = visit(serve().url, refusals=True, locale="en-US", width=360, height=740)
    assert page.title() == "Medical literature search"
    page.fill("#query", "头疼")
    page.press("#query", "Enter")
    expect(page.locator("#key")).to_be_focused()
    page.fill("#key", KEY)
    ask(page, "头疼", "round trip")
    assert page.locator("#hits li").count() == 6
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.route("**/search", lambda route: route.fulfill(status=429, headers={"Retry-After": "7"}, json={}))
    page.press("#query", "Enter")
    expect(page.locator("#status.bad")).to_contain_text("7 s")
    expect(page.locator("#hits li")).to_have_count(0)
