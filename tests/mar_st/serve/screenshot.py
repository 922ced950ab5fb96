"""Take the picture of the search page for the docs.

python -m tests.mar_st.serve.screenshot INDEX ENCODER QUERY docs/how-to/serve.png
"""

from __future__ import annotations

import subprocess
import sys

from playwright.sync_api import expect

from tests.mar_st.serve.browser import chromium, open_page


def main() -> None:
    index, encoder, query, out = sys.argv[1:]
    command = [
        sys.executable,
        "-m",
        "mar_st.cli",
        "serve",
        index,
        "--encoder",
        encoder,
        "--port",
        "0",
        "--name",
        "mar-mini",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[-1]
        with chromium() as browser, open_page(browser, url, width=900, height=820) as page:
            expect(page.locator("#facts")).to_contain_text("篇")
            for _ in range(3):  # warm, so that the time shown is the usual one
                page.fill("#query", query)
                page.press("#query", "Enter")
                expect(page.locator("#status")).to_contain_text("毫秒", timeout=30_000)
                page.wait_for_timeout(300)
            page.screenshot(path=out)
    finally:
        server.terminate()
        server.wait(20)


if __name__ == "__main__":
    main()
