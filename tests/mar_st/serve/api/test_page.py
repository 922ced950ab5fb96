"""The search page in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.mar_st.serve.browser import NO_BROWSER, ask, wait_for
from tests.mar_st.serve.fakes import DOCUMENTS, FakeEncoder

KEY = "a-key-of-enough-characters"

pytestmark = NO_BROWSER


def test_a_search_shows_hits_with_scores_legs_marks_and_time(lasting, visit):
    server = lasting()
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


@pytest.mark.thorough
def test_text_of_documents_is_never_markup(serve, visit, tmp_path):
    from tests.mar_st.serve.servers import make_index

    text = "<img src=x onerror=document.title='坏'><b>头疼</b>"
    server = serve(make_index(tmp_path, [text, "感冒"]))
    page = visit(server.url)
    ask(page, "头疼")
    assert text in page.inner_text("#hits")
    assert page.locator("#hits img").count() == 0
    assert page.title() == "医学文献检索"


@pytest.mark.thorough
def test_the_page_asks_for_a_key_if_the_server_needs_one(lasting, visit):
    server = lasting(api_keys=[KEY])
    page = visit(server.url, refusals=True)
    page.fill("#query", "头疼")
    page.press("#query", "Enter")
    expect(page.locator("#key")).to_be_focused()
    expect(page.locator("#status.bad")).to_contain_text("401")
    page.fill("#key", KEY)
    ask(page, "头疼")
    assert page.locator("#hits li").count() == 6


@pytest.mark.thorough
def test_on_a_phone_nothing_is_cut_off_and_controls_are_labelled(lasting, visit):
    server = lasting()
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


@pytest.mark.thorough
def test_the_page_of_the_api_describes_the_endpoints(lasting, visit):
    page = visit(f"{lasting().url}/docs")
    assert page.locator("section").count() >= 6
    text = page.inner_text("main")
    assert "/v1/embeddings" in text
    assert "`" not in text
    assert page.locator("td code", has_text="NAME-document").count() == 1
    assert "curl http://HOST:PORT/document?id=ID" in text


LONG = "".join(f"第{number}句：头疼的人要多休息。" for number in range(400)) + "最后一句"


@pytest.fixture
def library(serve, tmp_path):
    """A server with a long document, one that looks like markup, and one whose id is awkward."""
    from tests.mar_st.serve.servers import make_index

    return serve(make_index(tmp_path, [LONG, "<b>感冒</b>多喝水", "English only"], prefix="a/../&#?=% "))


@pytest.mark.thorough
def test_a_document_is_read_in_full_and_the_focus_comes_back(library, visit):
    page = visit(library.url)
    ask(page, LONG[:20])
    link = page.locator("#hits a", has_text="标题a/../&#?=% 0")
    link.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="标题a/../&#?=% 0")
    expect(dialog).to_be_visible()
    expect(page.locator("#document-text")).to_have_text(LONG)
    assert page.locator("#document-text mark").count() > 100
    assert "department：外科" in dialog.inner_text()
    # The text is scrolled with keys, the rest of the page is out of reach, and Escape leads back.
    page.locator("#document-text").focus()
    page.keyboard.press("End")
    wait_for(page, "document.getElementById('document-text').scrollTop > 0")
    for _ in range(4):
        page.keyboard.press("Tab")
        inside = (
            "document.activeElement.closest('dialog') !== null || document.activeElement === document.body"
        )
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(link).to_be_focused()
    expect(page).not_to_have_url(re.compile("document="))
    assert page.locator("#hits li").count() == 3  # no search was made again
    page.locator("#hits a", has_text="标题a/../&#?=% 1").click()
    expect(page.locator("#document-text")).to_have_text("<b>感冒</b>多喝水")
    page.get_by_role("button", name="关闭").click()
    expect(page.locator("#document")).to_be_hidden()


@pytest.mark.thorough
def test_the_url_holds_the_search_its_filter_and_the_document(library, visit):
    page = visit(library.url)
    page.click("#more summary")
    page.uncheck("#hybrid")
    page.select_option("#k", "5")
    page.fill("#where", "department=外科|&=")
    ask(page, "头疼 & 感冒=1#2%")
    ids = page.locator("#hits .id").all_inner_texts()
    assert len(ids) == 2
    page.locator("#hits a").first.click()
    expect(page.locator("#document-text")).not_to_be_empty()
    other = page.context.browser.new_page(locale="zh-CN")
    other.goto(page.url)
    expect(other.locator("#document-text")).to_have_text(page.locator("#document-text").inner_text())
    other.keyboard.press("Escape")
    expect(other.locator("#status")).to_contain_text("毫秒")
    assert other.locator("#hits .id").all_inner_texts() == ids
    assert other.input_value("#query") == "头疼 & 感冒=1#2%"
    assert other.input_value("#where") == "department=外科|&="
    assert other.input_value("#k") == "5"
    assert not other.is_checked("#hybrid")
    expect(other.locator("#document")).to_be_hidden()
    # The server never saw it: the query stands behind the #.
    assert "?" not in other.url.split("#")[0]


@pytest.mark.thorough
def test_back_and_forward_go_through_searches_and_documents(library, visit):
    page = visit(library.url)
    ask(page, "感冒")
    first = page.locator("#hits .id").all_inner_texts()
    page.click("#more summary")
    page.fill("#where", "department=内科")
    page.press("#query", "Enter")
    expect(page.locator("#hits li")).to_have_count(1)
    page.go_back()
    expect(page.locator("#hits li")).to_have_count(3)
    assert page.locator("#hits .id").all_inner_texts() == first
    assert page.input_value("#where") == ""
    page.locator("#hits a").first.click()
    expect(page.locator("#document")).to_be_visible()
    page.go_back()
    expect(page.locator("#document")).to_be_hidden()
    page.go_forward()
    expect(page.locator("#document")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(page.locator("#hits li")).to_have_count(0)


@pytest.mark.thorough
def test_an_error_clears_the_previous_hits(lasting, visit):
    server = lasting()
    page = visit(server.url, refusals=True)
    hits, error = page.locator("#hits li"), page.locator("#status.bad")
    page.click("#more summary")

    def recover():
        page.fill("#where", "")
        ask(page, "头疼")
        expect(hits).to_have_count(6)

    recover()
    page.fill("#where", "看不懂")
    page.press("#query", "Enter")
    expect(error).to_contain_text("看不懂")
    expect(hits).to_have_count(0)
    recover()
    answers = {
        "abort": lambda route: route.abort(),
        "html": lambda route: route.fulfill(
            status=502, content_type="text/html", body="<h1>Bad gateway</h1>"
        ),
        "busy": lambda route: route.fulfill(status=429, headers={"Retry-After": "7"}, json={}),
    }
    for name, shown in (("abort", "连不上服务器"), ("html", "502"), ("busy", "7 秒后")):
        page.route("**/search", answers[name])
        page.press("#query", "Enter")
        expect(error).to_contain_text(shown)
        expect(hits).to_have_count(0)
        page.unroute("**/search")
        recover()
    # A document that is gone is an error too, and closes what was opened for it.
    page.route("**/document?*", lambda route: route.fulfill(status=404, json={"error": {"message": "none"}}))
    page.locator("#hits a").first.click()
    expect(error).to_contain_text("没有找到（404）")
    expect(page.locator("#document")).to_be_hidden()
    expect(hits).to_have_count(0)


@pytest.mark.thorough
def test_the_page_speaks_chinese_and_english(lasting, visit):
    server = lasting()
    page = visit(server.url, locale="en-US")
    assert page.title() == "Medical literature search"
    assert page.evaluate("document.documentElement.lang") == "en"
    expect(page.locator("#facts")).to_contain_text("6 documents")
    ask(page, "头疼", "round trip")
    first = page.locator("#hits li").first
    assert "score" in first.inner_text()
    assert first.locator("h2 a").get_attribute("lang") == "zh-CN"
    page.get_by_role("button", name="中文").click()
    assert page.title() == "医学文献检索"
    expect(page.locator("#status")).to_contain_text("毫秒")
    assert "得分" in first.inner_text()
    page.reload()  # the choice is kept, and the search is still in the address
    expect(page.locator("#status")).to_contain_text("毫秒")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    # Both languages say the same things, with the same values in them.
    chinese, english = (page.evaluate(f"TEXTS.{name}") for name in ("zh", "en"))
    assert {name: sorted(re.findall(r"{\w+}", text)) for name, text in chinese.items()} == {
        name: sorted(re.findall(r"{\w+}", text)) for name, text in english.items()
    }
    assert {name for name, text in english.items() if re.search("[一-龥]", text)} == {"example", "other"}
    page.get_by_role("button", name="English").click()
    shown = "document.body.innerText + [...document.querySelectorAll('[placeholder]')].map(e => e.ariaLabel)"
    left = page.evaluate(f"({shown}).replace(/头疼|中文/g, '')")
    assert "检索" not in left
    assert "条数" not in left


@pytest.mark.thorough
def test_the_page_says_when_there_is_no_good_match(serve, visit, tmp_path):
    from mar_st.index import Index
    from tests.mar_st.serve.servers import make_index

    index = make_index(tmp_path, DOCUMENTS)
    plain = visit(serve(index).url)
    ask(plain, "胡言乱语")
    assert plain.inner_text("#match") == ""  # nothing was calibrated, so nothing is claimed
    entry = {"query": None, "threshold": 0.9, "false_reject": 0.05}
    Index.open(index).keep("matches", FakeEncoder.identity, entry)
    page = plain.context.browser.new_page(locale="zh-CN")
    page.goto(serve(index).url)
    ask(page, "胡言乱语")
    expect(page.locator("#match")).to_contain_text("没有找到可靠的匹配")
    assert page.locator("#hits li").count() == 6  # they are still there to be judged
    order = page.locator("#match, #hits").evaluate_all("found => found.map(element => element.id)")
    assert order == ["match", "hits"]
    page.get_by_role("button", name="English").click()
    expect(page.locator("#match")).to_contain_text("No good match was found")
    ask(page, DOCUMENTS[2], "round trip")
    expect(page.locator("#match")).to_be_empty()


@pytest.mark.thorough
def test_a_shared_search_waits_for_the_key(lasting, visit):
    server = lasting(api_keys=[KEY])
    page = visit(f"{server.url}/#q=头疼&where=department%3D内科", refusals=True)
    expect(page.locator("#key")).to_be_focused()
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    expect(page.locator("#hits li")).to_have_count(3)


def test_the_screenshot_of_the_docs_is_there():
    path = Path(__file__).parents[4] / "docs" / "how-to" / "serve.png"
    assert path.read_bytes().startswith(b"\x89PNG")
