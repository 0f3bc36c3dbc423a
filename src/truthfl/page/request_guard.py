"""Who may talk to the page: the browser that was given its address, from the page itself, and nobody else.

Other programs, other users of the machine and other sites in her browser can all reach a port of this machine. All
addresses begin with a random path; a random token in the first is exchanged for a cookie for that path; every request
must name this machine as its host (so that no other name can be pointed at it), come from no other origin, and, if it
changes something, bring a second secret that only the page can read. Looks at `access_secrets` and Starlette.
"""

from __future__ import annotations

from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truthfl.page.access_secrets import Door

LARGEST_BODY = 64 * 1024
CSRF_HEADER = "x-truthfl"
READING = ("GET", "HEAD")
OWN_SITE = ("same-origin", "none")

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
GO_ON = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=./"><title>truthfl</title>
<link rel="icon" href="static/icon.svg"></head>
<body><p><a href="./">Go on</a></p></body></html>
"""


class Guard:
    """Stands before the application and lets in what is allowed; every answer leaves with strict headers."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        host, port = headers.get("host", ""), scope["server"][1] if scope.get("server") else None
        if host not in {f"{name}:{port}" for name in self.door.hosts} | (set(self.door.hosts) if port == 80 else set()):
            return self._no("This machine is not known here by that name.", path)
        site = headers.get("sec-fetch-site", "none")
        if path == self.door.root and method == "GET" and "token" in QueryParams(scope["query_string"]):
            return self._enter(scope, site in OWN_SITE)
        if site not in OWN_SITE:
            return self._no("Another page sent this.", path)
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie_name(host), "")
        if not path.startswith(self.door.root) or not compare_digest(cookie.encode(), self.door.session.encode()):
            return self._no("The page is closed; open the link that truthfl printed.", path)
        if method not in READING:
            return self._refused_change(headers, f"{scope['scheme']}://{host}")
        return None

    def _enter(self, scope: Scope, from_her: bool) -> Response:
        """Give the cookie. It is not sent on where another page led to, so then the page itself goes on."""
        token = QueryParams(scope["query_string"]).get("token", "")
        if not compare_digest(token.encode(), self.door.token.encode()):
            return HTMLResponse(CLOSED, 403)
        root = self.door.root
        inside: Response = RedirectResponse(root, 303) if from_her else HTMLResponse(GO_ON)
        name = _cookie_name(Headers(scope=scope)["host"])
        inside.set_cookie(name, self.door.session, httponly=True, samesite="strict", path=root)
        return inside

    def _no(self, sentence: str, path: str) -> Response:
        """In words for a script, as a page for a person."""
        of_scripts = tuple(self.door.root + folder for folder in ("api/", "samples/", "thumbs/", "static/"))
        if path.startswith(of_scripts):
            return JSONResponse({"error": sentence}, 403)
        return HTMLResponse(CLOSED, 403)

    def _refused_change(self, headers: Headers, origin: str) -> Response | None:
        if headers.get("origin") != origin:
            return JSONResponse({"error": "Another page sent this."}, 403)
        if not compare_digest(headers.get(CSRF_HEADER, "").encode(), self.door.csrf.encode()):
            return JSONResponse({"error": "This did not come from the page; load it again."}, 403)
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return JSONResponse({"error": "This is more than the page ever sends."}, 413)
        return None


def _cookie_name(host: str) -> str:
    """With the port in it: pages of two ports do not take each other's."""
    return f"truthfl-{host.rsplit(':', 1)[-1]}"
