"""Who may talk to the page: the browser that was given its address, from the page itself, and nobody else.

Other programs, other users of the machine and other sites in her browser can all reach a port of this machine. A random
token in the first address is exchanged for a cookie; every request must name this machine as its host (so that no
other name can be pointed at it), come from no other origin, and, if it changes something, bring a second secret that
only the page can read. Looks at `door` and Starlette.
"""

from __future__ import annotations

from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truthfl.labeling.door import Door

LARGEST_BODY = 64 * 1024
CSRF_HEADER = "x-truthfl"
READING = ("GET", "HEAD")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

CLOSED = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>truthfl</title></head>
<body><main><h1>This page needs its whole address</h1>
<p>Open the link that truthfl printed where you started it. It has a token at its end that lets only you in, and it is
a new one each time truthfl starts. What you decided before is kept.</p></main></body></html>
"""


class Guard:
    """Stands before the application and lets in what is allowed; every answer leaves with strict headers."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None
        refusal = self._refusal(scope)

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        return await (refusal or self.app)(scope, receive, send_strictly)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, method = Headers(scope=scope), scope["method"]
        host, port = headers.get("host", ""), scope["server"][1] if scope.get("server") else None
        if host not in {f"{name}:{port}" for name in self.door.hosts} | (set(self.door.hosts) if port == 80 else set()):
            return _no("This machine is not known here by that name.")
        entering = scope["path"] == "/" and method == "GET" and "token" in QueryParams(scope["query_string"])
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not entering:
            return _no("Another page sent this.")
        if entering:
            return self._enter(scope, host)
        if not compare_digest(_cookie(headers, _cookie_name(host)).encode(), self.door.session.encode()):
            return _no("The page is closed; open the link that truthfl printed.", scope["path"])
        if method not in READING:
            return self._refused_change(headers, f"{scope['scheme']}://{host}")
        return None

    def _enter(self, scope: Scope, host: str) -> Response:
        token = QueryParams(scope["query_string"]).get("token", "")
        if not compare_digest(token.encode(), self.door.token.encode()):
            return HTMLResponse(CLOSED, 403)
        inside = RedirectResponse("/", 303)
        inside.set_cookie(_cookie_name(host), self.door.session, httponly=True, samesite="strict", path="/")
        return inside

    def _refused_change(self, headers: Headers, origin: str) -> Response | None:
        if headers.get("origin") != origin:
            return _no("Another page sent this.")
        if not compare_digest(headers.get(CSRF_HEADER, "").encode(), self.door.csrf.encode()):
            return _no("This did not come from the page; load it again.")
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return JSONResponse({"error": "This is more than the page ever sends."}, 413)
        return None


def _no(sentence: str, path: str = "/api/") -> Response:
    """In words for a script, as a page for a person."""
    if path.startswith(("/api/", "/samples/", "/thumbs/", "/static/")):
        return JSONResponse({"error": sentence}, 403)
    return HTMLResponse(CLOSED, 403)


def _cookie_name(host: str) -> str:
    """With the port in it, for a browser sends a machine's cookies to all of its ports."""
    return f"truthfl-{host.rsplit(':', 1)[-1]}"


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""
