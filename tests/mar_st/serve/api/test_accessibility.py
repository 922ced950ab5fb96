"""The pages by keyboard, screen reader and in both colour schemes."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

import mar_st.serve.api
from tests.mar_st.serve.api.accessibility import axe_core, colours, contrast, violations
from tests.mar_st.serve.browser import NO_BROWSER, ask

STYLE = Path(mar_st.serve.api.__file__).parent / "page" / "page.css"

#: Colours of texts and their backgrounds.
TEXTS = [
    ("text", "back"), ("text", "card"), ("text", "mark"), ("soft", "back"), ("soft", "card"),
    ("accent", "back"), ("accent", "card"), ("on-accent", "accent"), ("bad", "back"), ("doubt", "card"),
]  # fmt: skip
#: Visible elements without text: the edges of controls, the focus.
SHAPES = [("edge", "back"), ("edge", "card"), ("accent", "back"), ("accent", "card")]

STATES = ("empty", "options", "results", "doubtful", "error", "document", "docs")
AXE = axe_core()


def bring(page, state, server):
    """Bring the search page into a state."""
    page.unroute_all()
    if state == "docs":
        page.goto(f"{server.url}/docs")
        for part in page.locator("details").all():
            part.evaluate("part => { part.open = true; }")
        return
    page.goto("about:blank")
    page.goto(server.url)
    expect(page.locator("#facts")).to_contain_text("6")
    if state == "options":
        page.locator("#more summary").click()
    elif state == "error":
        page.route(
            "**/search", lambda route: route.fulfill(status=429, headers={"Retry-After": "7"}, json={})
        )
        page.fill("#query", "头疼")
        page.press("#query", "Enter")
        expect(page.locator("#status.bad")).to_be_visible()
    elif state != "empty":
        if state == "doubtful":
            page.route("**/search", doubt)
        page.fill("#query", "高血压少吃盐")
        page.press("#query", "Enter")
        expect(page.locator("#hits li")).to_have_count(6)
        if state == "doubtful":
            expect(page.locator("#match")).not_to_be_empty()
        if state == "document":
            page.locator("#hits a").first.click()
            expect(page.locator("#document-text")).not_to_be_empty()


def doubt(route):
    """Answer as the server does, but doubtfully."""
    answer = route.fetch()
    route.fulfill(response=answer, json={**answer.json(), "match": "doubtful"})


@NO_BROWSER
@pytest.mark.slow
@pytest.mark.skipif(AXE is None, reason="needs axe-core (npm install --no-save axe-core), or $AXE_CORE")
@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_core_finds_nothing(lasting, visit, locale, scheme):
    server = lasting()
    page = visit(server.url, locale=locale, scheme=scheme, refusals=True)
    broken_rules = {}
    for width in (1100, 320):
        page.set_viewport_size({"width": width, "height": 700})
        for state in STATES:
            bring(page, state, server)
            dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
            assert dark == (scheme == "dark")
            broken_rules |= {(width, state, *one): 1 for one in violations(page, AXE)}
    assert not broken_rules


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_enough_contrast(scheme):
    palette = colours(STYLE.read_text(encoding="utf-8"))[scheme]
    ratios = {pair: contrast(palette[pair[0]], palette[pair[1]]) for pair in {*TEXTS, *SHAPES}}
    assert not {pair: ratio for pair, ratio in ratios.items() if ratio < (4.5 if pair in TEXTS else 3)}
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777", "#fff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.thorough
@NO_BROWSER
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_visible_elements_have_the_colours_of_the_style_sheet(lasting, visit, scheme):
    """Text of every element, against the first background behind it that is not transparent."""
    server = lasting()
    page = visit(server.url, scheme=scheme)
    known = colours(STYLE.read_text(encoding="utf-8"))[scheme]
    allowed = {(rgb(known[text]), rgb(known[back])): (text, back) for text, back in TEXTS}
    script = """() => [...document.querySelectorAll('body, body *')]
      .filter(e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
      .map(e => {
        const back = element => getComputedStyle(element).backgroundColor;
        let behind = e;
        while (behind && back(behind) === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
        return [getComputedStyle(e).color, back(behind ?? document.body), e.tagName];
      })"""
    seen = set()
    for state in ("options", "doubtful", "document"):
        bring(page, state, server)
        for text, back, tag in page.evaluate(script):
            assert (text, back) in allowed, (state, tag)
            seen.add(allowed[text, back])
    assert seen >= {
        ("text", "card"),
        ("soft", "card"),
        ("accent", "card"),
        ("text", "mark"),
        ("doubt", "card"),
    }


def rgb(colour):
    digits = colour.removeprefix("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    return "rgb({}, {}, {})".format(*(int(digits[place : place + 2], 16) for place in (0, 2, 4)))


@pytest.mark.thorough
@NO_BROWSER
def test_everything_is_reached_with_the_keyboard_in_the_order_it_is_seen(lasting, visit):
    page = visit(lasting().url)
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type("高血压少吃盐")
    page.keyboard.press("Enter")
    expect(page.locator("#hits li")).to_have_count(6)

    def step(key="Tab"):
        page.keyboard.press(key)
        shown = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        assert page.evaluate(f"document.activeElement === document.body || ({shown})")
        return page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")

    assert step() == "检索"
    assert step() == "更多选项"
    page.keyboard.press("Enter")
    assert [step() for _ in range(3)] == ["k", "hybrid", "where"]
    assert [step() for _ in range(2)] == page.locator("#hits a").all_inner_texts()[:2]
    for _ in range(6):
        step("Shift+Tab")
    assert step("Shift+Tab") == "query"
    assert step("Shift+Tab") == "language"
    page.keyboard.press("Space")
    expect(page.locator("h1")).to_have_text("Medical literature search")


@pytest.mark.thorough
@NO_BROWSER
def test_a_screen_reader_is_told_what_there_is(lasting, visit):
    server = lasting()
    page = visit(server.url)
    ask(page, "高血压少吃盐")
    page.click("#more summary")
    for role, name in (
        ("searchbox", "用一句话描述您的问题"), ("button", "检索"), ("button", "English"),
        ("combobox", "条数"), ("checkbox", "混合检索（向量 + 关键词）"),
        ("textbox", "筛选"), ("list", "检索结果"),
    ):  # fmt: skip
        assert page.get_by_role(role, name=name, exact=True).count() == 1, name
    for role in ("banner", "main", "contentinfo", "search"):
        assert page.get_by_role(role).count() == 1, role
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("heading", level=2).count() == 6
    assert page.get_by_role("status").count() == 2
    described = page.locator("#where").get_attribute("aria-describedby")
    assert "department" in page.locator(f"#{described}").inner_text()
    bring(page, "doubtful", server)
    assert page.locator("#match").get_attribute("role") == "status"
    page.unroute_all()
    bring(page, "document", server)
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    roles = {node["role"]["value"] for node in tree if not node["ignored"]}
    assert {"dialog", "region", "heading"} <= roles
    assert not {"searchbox", "list", "banner"} & roles  # what lies behind is out of reach
