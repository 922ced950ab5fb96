"""A headless Chromium that fails on console errors and on requests to other sites."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)")


def ask(page: Any, query: str, shown: str = "毫秒") -> None:
    """Search for a query and wait for the answer."""
    from playwright.sync_api import expect

    page.fill("#query", query)
    page.press("#query", "Enter")
    expect(page.locator("#status")).to_contain_text(shown)


@contextmanager
def chromium() -> Iterator[Any]:
    """Starts a browser for several pages. In the meantime `asyncio.run` cannot be called in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Any,
    url: str,
    *,
    width: int = 1100,
    height: int = 900,
    refusals: bool = False,
    locale: str = "zh-CN",
    scheme: str = "light",
) -> Iterator[Any]:
    """Opens a page; at the end fails if it asked for anything elsewhere, or wrote errors.

    Pages share no cookies, storage or cache.

    Args:
        browser: A running Chromium.
        url: The page.
        width: Of the window.
        height: Of the window.
        refusals: Answers with errors, or none, are expected.
        locale: Language of the browser.
        scheme: `light` or `dark`.
    """
    complaints: list[str] = []
    origin = "/".join(url.split("/", 3)[:3])

    def record_message(message: Any) -> None:
        if message.type in ("error", "warning") and not (
            refusals and "Failed to load resource" in message.text
        ):
            complaints.append(message.text)

    def record_request(request: Any) -> None:
        if not request.url.startswith((origin, "data:")):
            complaints.append(f"asked for {request.url}")

    context = browser.new_context(
        viewport={"width": width, "height": height}, locale=locale, color_scheme=scheme
    )
    try:
        page = context.new_page()
        page.on("console", record_message)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", record_request)
        page.set_default_timeout(15_000)
        page.goto(url)
        yield page
    finally:
        context.close()
    assert not complaints, complaints
