"""Chromium, driven by Playwright, and the labeling page in it: windows, keys, accessibility."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from benchmarks.browser import NAMES, chromium

from helpers.commands import begun

KEPT = {}
WINDOWS = {}  # by browser and settings: the empty tab of a window that no test uses now
OPENED = ExitStack()  # closed at the end of all tests


@contextmanager
def launched():
    """The browser of this process, started once; each test has its own pages in it."""
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
    """Start Playwright, whose event loop then stays in this thread: `asyncio.run` needs another thread."""
    if "driver" not in KEPT:
        _path()
        playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright")
        KEPT["driver"] = OPENED.enter_context(playwright.sync_playwright())
    return KEPT["driver"]


class Watch:
    """Watches a page for errors, warnings, and requests to other machines.

    The browser itself reports failed requests; a test that makes them fail sets `expected`.
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


DIGITS = tuple("0123456789")


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


DESKTOP = {"viewport": {"width": 1280, "height": 800}}


NOT_FOUND_YET = 10_000  # milliseconds


DONE = "#done:not([hidden])"


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@contextmanager
def looking(browser, url, **how):
    """A page at this address; errors in it, and requests to other machines, fail the test.

    It is a tab beside an empty one, whose window is kept for the next test: opening a window is most of the work.
    """
    how = how or DESKTOP
    kind = id(browser), json.dumps(how, sort_keys=True)
    empty = WINDOWS.pop(kind, None) or browser.new_context(**how).new_page()
    page = empty.context.new_page()
    page.set_default_timeout(NOT_FOUND_YET)
    page.watch = Watch(page)
    page.goto(url)
    yield page
    _forget_pages(empty)
    WINDOWS[kind] = empty
    assert page.watch.elsewhere == []
    assert page.watch.trouble == []


def _forget_pages(empty):
    """Close the other tabs of this window, and forget what their pages have kept."""
    for page in [page for page in empty.context.pages if page != empty]:
        where = urlsplit(page.url)
        page.close()
        session = empty.context.new_cdp_session(empty)
        session.send(
            "Storage.clearDataForOrigin", {"origin": f"{where.scheme}://{where.netloc}", "storageTypes": "all"}
        )
        session.detach()
    empty.context.clear_cookies()


@contextmanager
def command(data, home, *more):
    """`truthfl label` as a separate process; yields the process and the address."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "label.log"
        process = begun("label", "--data", data, "--home", home, "--no-browser", *more, log=log)
        try:
            yield process, address_in(log)
        finally:
            process.kill()
            process.wait()


def address_in(log):
    """The address of the page, as soon as the command prints it there."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if found := re.search(r"http://\S+\s", log.read_text(encoding="utf-8")):
            return found.group().strip()
        time.sleep(0.02)
    raise AssertionError(log.read_text(encoding="utf-8"))


def showing(position):
    """The selector of the picture at this position; the page's policy lets no test evaluate strings in it."""
    return f"body[data-at='{position}']"


def at(page):
    """The position of the shown picture."""
    return int(page.evaluate("document.body.dataset.at"))


def press(page, key, until=None):
    """Press a key and wait for the next picture, or for `until`; return the position at the key press."""
    before = at(page)
    page.keyboard.press(key)
    page.wait_for_selector(until or f"body:not([data-at='{before}'])")
    return before


def count(page):
    return page.inner_text("#count")


def decisions(home):
    with closing(sqlite3.connect(home / "labels.db")) as database:
        return database.execute("select sample, action, label, undoes from decisions order by number").fetchall()


def axe(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]]) for one in found]


def axe_by_day_and_night(page):
    """The faults of the page in light and dark mode; afterwards the page is as before."""
    found = []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        found += [(scheme, *one) for one in axe(page)]
    return found


SELECTED = "#grid [aria-selected=true]"


def review(opened):
    return opened.url.split("/?")[0] + "/review"


def counts(page):
    return dict(
        button.inner_text().split("\n") for button in page.locator("#groups button").all() if button.is_visible()
    )


HERE = "127.0.0.1"


TOUCH_PHONE = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}
