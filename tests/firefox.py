"""A real Firefox for the tests: the machine's own, driven by WebDriver BiDi. Where there is none, tests say so.

It runs without a window, in a profile of its own, and reaches nothing but this machine. Uses `firefox_page` and
`webdriver_bidi`.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from firefox_page import Page
from webdriver_bidi import connected

NAMES = ("firefox-esr", "firefox")
PATIENCE = 60  # seconds
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
    """The browser. What its own interface can do (preferences, zoom) is done there."""

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
        """As Ctrl and + do: of this machine's pages, until it is set again."""
        self.in_interface(f"FullZoom.setZoom({factor}, gBrowser.selectedBrowser)")

    @contextmanager
    def looking(self, url, width=1280, height=800, scheme="light", languages="en-US, en", zoom=1, touch=False):
        """A page at this address, without others' cookies; what goes wrong in it, or leaves the machine, fails."""
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
