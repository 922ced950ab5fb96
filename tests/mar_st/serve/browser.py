"""A headless Chromium that counts everything a page should not do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_page(
    program: str, url: str, *, width: int = 1100, height: int = 900, refusals: bool = False
) -> Iterator[Any]:
    """Opens a page; at the end fails if it asked for anything elsewhere, or wrote errors.

    Args:
        program: Chromium.
        url: The page.
        width: Of the window.
        height: Of the window.
        refusals: Whether answers with errors are expected.
    """
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []

    def heard(message: Any) -> None:
        if message.type in ("error", "warning") and not (refusals and "status of 4" in message.text):
            complaints.append(message.text)

    def asked(request: Any) -> None:
        if not request.url.startswith((url.removesuffix("/docs"), "data:")):
            complaints.append(f"asked for {request.url}")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, locale="zh-CN")
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", asked)
        page.set_default_timeout(15_000)
        page.goto(url)
        yield page
        browser.close()
    assert not complaints, complaints
