"""A real browser for the tests: the machine's Chromium, driven by Playwright. Where there is none, tests say so."""

from contextlib import contextmanager

import pytest
from benchmarks.browser import NAMES, chromium


@contextmanager
def launched():
    path = chromium()
    if path is None:
        pytest.skip(f"no browser: set TRUTHFL_CHROMIUM, or put one of {', '.join(NAMES)} on the PATH")
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Looks over a page's shoulder: errors, complaints, and requests to anybody but this machine.

    Of failed requests the browser itself complains; a test that makes them fail sets `expected`.
    """

    def __init__(self, page):
        self.trouble, self.elsewhere, self.expected = [], [], None
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message):
        if message.type in ("error", "warning") and not (self.expected and self.expected in message.text):
            self.trouble.append(message.text)

    def _request(self, request):
        if not request.url.startswith("http://127.0.0.1:"):
            self.elsewhere.append(request.url)
