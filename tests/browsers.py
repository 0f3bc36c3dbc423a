"""A real browser for the tests: the machine's Chromium, driven by Playwright. Where there is none, tests say so."""

from contextlib import ExitStack, contextmanager

import pytest
from benchmarks.browser import NAMES, chromium

KEPT = {}
OPENED = ExitStack()  # what the end of all tests closes


@contextmanager
def launched():
    """The browser of this process, which is started once; each test has pages of its own in it."""
    if "browser" not in KEPT or not KEPT["browser"].is_connected():
        KEPT["browser"] = _driver().chromium.launch(executable_path=_path(), args=["--no-sandbox"])
        OPENED.callback(KEPT["browser"].close)
    yield KEPT["browser"]


def _path():
    path = chromium()
    if path is None:
        pytest.skip(f"no browser: set TRUTHFL_CHROMIUM, or put one of {', '.join(NAMES)} on the PATH")
    return path


def _driver():
    """Playwright has an event loop in this thread from now on: `asyncio.run` needs another thread."""
    if "driver" not in KEPT:
        _path()
        playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright")
        KEPT["driver"] = OPENED.enter_context(playwright.sync_playwright())
    return KEPT["driver"]


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
