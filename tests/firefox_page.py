"""A page in Firefox: keys, taps and clicks as a person makes them, and what there is to see. Uses `webdriver_bidi`."""

import base64
import json
import time
from importlib.resources import files

from webdriver_bidi import CommandError

PATIENCE = 20  # seconds
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
    tab         the browser's name of it
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
        """Until it is true of the page, also across a change of pages."""
        end = time.monotonic() + PATIENCE
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
        """These keys, one after the other; "Shift+Tab" holds the first while the second is pressed."""
        for key in keys:
            held = [KEYS.get(part, part) for part in (key.split("+") if len(key) > 1 else [key])]
            actions = [{"type": "keyDown", "value": one} for one in held]
            actions += [{"type": "keyUp", "value": one} for one in reversed(held)]
            self._act({"type": "key", "id": "keyboard", "actions": actions})

    def tab_to(self, selector, key="Tab"):
        """By the Tab key alone, as often as it takes once it is there; "Shift+Tab" goes backwards."""
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
        """Turn the wheel over it; towards oneself is more than 0."""
        turn = {"type": "scroll", **self._middle(selector), "deltaX": 0, "deltaY": pixels}
        self._act({"type": "wheel", "id": "wheel", "actions": [turn]})

    def pinch(self, selector, before, after):
        """Two fingers on it, side by side, moved from one distance to another, in pixels."""
        middle = self._middle(selector)
        fingers = []
        for side in (-1, 1):
            places = [{"x": middle["x"] + side * distance // 2, "y": middle["y"]} for distance in (before, after)]
            fingers.append(_pointer("touch", f"finger {side}", *places))
        self._act(*fingers)

    def _middle(self, selector):
        """Where to point at it, once it is there; fails if it stays outside the window or something stays over it."""
        self.wait_for_selector(selector)
        end = time.monotonic() + PATIENCE
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
        """What axe finds against it: rules, each with the elements."""
        if not self.evaluate("typeof axe === 'object'"):
            source = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
            self._connection.run_script(self._tab, source)
        return self.evaluate(
            """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
                violations.map(({ id, nodes }) => [id, nodes.map(({ target }) => target)]))"""
        )

    def screenshot(self):
        """As PNG."""
        return base64.b64decode(self._command("browsingContext.captureScreenshot")["data"])

    def trouble(self):
        """Errors and warnings in its console."""
        return [one["text"] for one in self._events("log.entryAdded") if one["level"] in ("error", "warn")]

    def elsewhere(self):
        """The addresses it asked for that are not of this machine."""
        asked = [one["request"]["url"] for one in self._events("network.beforeRequestSent")]
        return [url for url in asked if not url.startswith(HERE)]

    def _events(self, method):
        """Those of this page; what has happened so far is there once the browser has answered."""
        self.evaluate("null")
        told = [one["params"] for one in self._connection.events if one["method"] == method]
        return [one for one in told if one.get("source", one)["context"] == self._tab]


def _pointer(kind, name, first, *others):
    """Pressed at the first place, moved to the others, let go."""
    down, up = ({"type": what, "button": 0} for what in ("pointerDown", "pointerUp"))
    moves = [{"type": "pointerMove", "duration": 50, **place} for place in others]
    actions = [{"type": "pointerMove", **first}, down, *moves, up]
    return {"type": "pointer", "id": name, "parameters": {"pointerType": kind}, "actions": actions}
