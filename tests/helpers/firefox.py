"""Firefox, driven by WebDriver BiDi, and a page in it: keys, taps and clicks as a person makes them.

It runs without a window, in its own profile, and reaches only this machine.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.resources import files
from itertools import count
from pathlib import Path

import pytest
from websockets.sync.client import connect

PATIENCE = 60  # seconds


class CommandError(AssertionError):
    """The browser's error for a command that it cannot carry out."""


@contextmanager
def connected(address):
    """A session at this address."""
    with connect(address, max_size=None, proxy=None) as socket:
        connection = Connection(socket)
        connection.command("session.new", capabilities={})
        yield connection


class Connection:
    def __init__(self, socket):
        self.events = []
        self._socket, self._numbers = socket, count(1)

    def command(self, method, **parameters):
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message["type"] == "event":
                self.events.append(message)
            elif message["id"] == number:
                if message["type"] == "error":
                    raise CommandError(f"{method}: {message['error']}: {message['message']}")
                return message["result"]

    def evaluate(self, context, expression):
        """The value of this JavaScript expression, or of the promise that it returns."""
        answer = self.command(
            "script.evaluate",
            expression=f"Promise.resolve({expression}).then((value) => JSON.stringify(value))",
            target={"context": context},
            awaitPromise=True,
        )
        if answer["type"] == "exception":
            raise CommandError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"].get("value", "null"))

    def run_script(self, context, source):
        """Run JavaScript statements, whatever the page's policy on scripts."""
        answer = self.command("script.evaluate", expression=source, target={"context": context}, awaitPromise=False)
        assert answer["type"] == "success"


PAGE_PATIENCE = 20  # seconds
KEYS = {
    "Backspace": "\ue003", "Tab": "\ue004", "Enter": "\ue007", "Shift": "\ue008", "Escape": "\ue00c",
    "PageUp": "\ue00e", "PageDown": "\ue00f", "End": "\ue010", "Home": "\ue011",
    "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015",
}  # fmt: skip
TAB_LIMIT = 60  # presses
HERE = ("http://127.0.0.1:", "https://127.0.0.1:", "data:", "about:")


class Page:
    """
    connection  to the browser
    tab         the browser's name for it
    """

    def __init__(self, connection, tab):
        self._connection, self._tab = connection, tab

    def _command(self, method, **parameters):
        return self._connection.command(method, context=self._tab, **parameters)

    def goto(self, url):
        self._command("browsingContext.navigate", url=url, wait="complete")

    def size(self, width, height):
        self._command("browsingContext.setViewport", viewport={"width": width, "height": height})

    def evaluate(self, expression):
        return self._connection.evaluate(self._tab, expression)

    def wait_for(self, expression):
        """Wait until this is true of the page, even across a change of pages."""
        end = time.monotonic() + PAGE_PATIENCE
        while True:
            try:
                if found := self.evaluate(expression):
                    return found
            except CommandError as error:  # between two pages
                if time.monotonic() > end:
                    raise AssertionError(f"never true: {expression}") from error
            if time.monotonic() > end:
                raise AssertionError(f"never true: {expression}; the page shows: {self.words('body')}")
            time.sleep(0.02)

    def wait_for_selector(self, selector):
        self.wait_for(f"[...document.querySelectorAll({json.dumps(selector)})].some((one) => one.checkVisibility())")

    def words(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def press(self, *keys):
        """Press these keys in turn; "Shift+Tab" holds the first while the second is pressed."""
        for key in keys:
            held = [KEYS.get(part, part) for part in (key.split("+") if len(key) > 1 else [key])]
            actions = [{"type": "keyDown", "value": one} for one in held]
            actions += [{"type": "keyUp", "value": one} for one in reversed(held)]
            self._act({"type": "key", "id": "keyboard", "actions": actions})

    def tab_to(self, selector, key="Tab"):
        """Wait until it is there, then reach it with the Tab key alone; "Shift+Tab" goes backwards."""
        self.wait_for_selector(selector)
        for _ in range(TAB_LIMIT):
            self.press(key)
            assert self.evaluate("document.hasFocus()"), f"{key} left the page and passed no {selector}"
            if self.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
                return
        raise AssertionError(f"{selector} is not reached by {TAB_LIMIT} presses of {key}")

    def tap(self, selector, times=1):
        finger = _pointer("touch", "finger", self._middle(selector))
        self._act(finger | {"actions": finger["actions"] * times})

    def click(self, selector):
        self._act(_pointer("mouse", "mouse", self._middle(selector)))

    def wheel(self, selector, pixels):
        """Turn the wheel over it; more than 0 is towards the user."""
        turn = {"type": "scroll", **self._middle(selector), "deltaX": 0, "deltaY": pixels}
        self._act({"type": "wheel", "id": "wheel", "actions": [turn]})

    def pinch(self, selector, before, after):
        """Put two fingers on it, side by side, and move them from one distance to another, in pixels."""
        middle = self._middle(selector)
        fingers = []
        for side in (-1, 1):
            places = [{"x": middle["x"] + side * distance // 2, "y": middle["y"]} for distance in (before, after)]
            fingers.append(_pointer("touch", f"finger {side}", *places))
        self._act(*fingers)

    def _middle(self, selector):
        """Where to point at it, once it is there; fail if it stays outside the window or covered."""
        self.wait_for_selector(selector)
        end = time.monotonic() + PAGE_PATIENCE
        while not (found := self._place(selector))["free"]:
            assert time.monotonic() < end, f"{selector} cannot be pointed at"
            time.sleep(0.02)
        return {"x": found["x"], "y": found["y"]}

    def _place(self, selector):
        return self.evaluate(
            f"""(() => {{
                const one = [...document.querySelectorAll({json.dumps(selector)})].find((it) => it.checkVisibility());
                one.scrollIntoView({{ block: "nearest" }});
                const box = one.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                return {{ x: Math.round(x), y: Math.round(y), free: one.contains(document.elementFromPoint(x, y)) }};
            }})()"""
        )

    def _act(self, *sources):
        self._command("input.performActions", actions=sources)

    def axe(self):
        """The rules that axe finds broken, each with the elements."""
        if not self.evaluate("typeof axe === 'object'"):
            source = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
            self._connection.run_script(self._tab, source)
        return self.evaluate(
            """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
                violations.map(({ id, nodes }) => [id, nodes.map(({ target }) => target)]))"""
        )

    def screenshot(self):
        """The page's picture, as PNG."""
        return base64.b64decode(self._command("browsingContext.captureScreenshot")["data"])

    def trouble(self):
        """Errors and warnings in its console."""
        return [one["text"] for one in self._events("log.entryAdded") if one["level"] in ("error", "warn")]

    def elsewhere(self):
        """The requested addresses that are not on this machine."""
        asked = [one["request"]["url"] for one in self._events("network.beforeRequestSent")]
        return [url for url in asked if not url.startswith(HERE)]

    def _events(self, method):
        """The events of this page; once the browser has answered, all events so far are included."""
        self.evaluate("null")
        told = [one["params"] for one in self._connection.events if one["method"] == method]
        return [one for one in told if one.get("source", one)["context"] == self._tab]


def _pointer(kind, name, first, *others):
    """Press at the first place, move to the others, let go."""
    down, up = ({"type": what, "button": 0} for what in ("pointerDown", "pointerUp"))
    moves = [{"type": "pointerMove", "duration": 50, **place} for place in others]
    actions = [{"type": "pointerMove", **first}, down, *moves, up]
    return {"type": "pointer", "id": name, "parameters": {"pointerType": kind}, "actions": actions}


NAMES = ("firefox-esr", "firefox")
ADDRESS_FILE = "WebDriverBiDiServer.json"  # Firefox writes it into the profile when it listens
CLOSED_PORT = 9  # of this machine; Firefox takes it for a proxy to all others
PREFERENCES = {
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": CLOSED_PORT,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": CLOSED_PORT,
    "network.trr.mode": 5,  # no names asked for over HTTPS
    "network.dns.disablePrefetch": True,
    "network.prefetch-next": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.newtabpage.enabled": False,
    "browser.startup.page": 0,
    "browser.startup.homepage": "about:blank",
    "browser.safebrowsing.downloads.remote.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.search.update": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.healthreport.uploadEnabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.getAddons.cache.enabled": False,
    "extensions.update.enabled": False,
    "media.gmp-manager.updateEnabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.enabled": False,
    "dom.push.connection.enabled": False,
    "intl.accept_languages": "en-US, en",
    "layout.css.prefers-color-scheme.content-override": 1,  # light
    "dom.w3c_touch_events.enabled": 1,  # also where the machine has no touch screen
}

COARSE, FINE_AND_HOVERING = 1, 6  # what a pointer can do, in preferences
SWITCHES = {
    "MOZ_CRASHREPORTER_DISABLE": "1",
    "MOZ_REMOTE_SETTINGS_DEVTOOLS": "1",  # or a release asks Mozilla's server, whatever its preferences say
}


def firefox():
    """The path of Firefox: TRUTHFL_FIREFOX, or one of its usual names on the PATH."""
    return os.environ.get("TRUTHFL_FIREFOX") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched():
    path = firefox()
    if path is None:
        pytest.skip(f"no Firefox: set TRUTHFL_FIREFOX, or put one of {', '.join(NAMES)} on the PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = _start(path, Path(folder))
        try:
            with connected(_address(process, Path(folder))) as connection:
                yield Firefox(connection)
                connection.command("browser.close")
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


def _start(path, profile):
    lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items())
    (profile / "user.js").write_text("\n".join(lines))
    arguments = ["--headless", "--no-remote", "--remote-debugging-port=0", "--remote-allow-system-access"]
    with (profile / "output.txt").open("wb") as output:
        return subprocess.Popen(
            [path, *arguments, "--profile", str(profile), "about:blank"],
            stdout=output,
            stderr=output,
            env=os.environ | {"HOME": str(profile)} | SWITCHES,
        )


def _address(process, profile):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            told = json.loads((profile / ADDRESS_FILE).read_text())
            return f"ws://{told['ws_host']}:{told['ws_port']}/session"
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.02)
    raise AssertionError(f"Firefox does not listen: {(profile / 'output.txt').read_text()}")


class Firefox:
    """The browser. Its own interface sets preferences and zoom."""

    def __init__(self, connection):
        self.connection = connection
        (window,) = connection.command("browsingContext.getTree", **{"moz:scope": "chrome", "maxDepth": 0})["contexts"]
        self._window = window["context"]
        connection.command("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])

    def in_interface(self, expression):
        return self.connection.evaluate(self._window, expression)

    def prefer(self, name, value):
        kind = {bool: "Bool", int: "Int", str: "String"}[type(value)]
        self.in_interface(f"Services.prefs.set{kind}Pref({json.dumps(name)}, {json.dumps(value)})")

    def zoom(self, factor):
        """Zoom this machine's pages, as Ctrl and + do, until it is set again."""
        self.in_interface(f"FullZoom.setZoom({factor}, gBrowser.selectedBrowser)")

    @contextmanager
    def looking(self, url, width=1280, height=800, scheme="light", languages="en-US, en", zoom=1, touch=False):
        """A page at this address, without other pages' cookies; errors and requests to other machines fail the test."""
        for pointers in ("ui.primaryPointerCapabilities", "ui.allPointerCapabilities"):
            self.prefer(pointers, COARSE if touch else FINE_AND_HOVERING)
        self.prefer("layout.css.prefers-color-scheme.content-override", {"dark": 0, "light": 1}[scheme])
        self.prefer("intl.accept_languages", languages)
        user = self.connection.command("browser.createUserContext")["userContext"]
        tab = self.connection.command("browsingContext.create", type="tab", userContext=user)["context"]
        page = Page(self.connection, tab)
        try:
            page.size(width, height)
            page.goto(url)
            self.zoom(zoom)
            yield page
            trouble, elsewhere = page.trouble(), page.elsewhere()
        finally:
            self.zoom(1)
            self.connection.command("browser.removeUserContext", userContext=user)
        assert elsewhere == [], elsewhere
        assert trouble == [], trouble
