"""ASGI middleware that accepts only requests of the participant's browser, from the page itself.

Other programs, other users of the machine and other sites in the browser can reach a port of this machine. All URLs
begin with a random path; a random token in the first URL is exchanged for a cookie for that path. Every request must
have this machine as its host (against DNS rebinding) and the page as its origin; one that changes data must have a CSRF
token. Imports `access_secrets` and Starlette.
"""

from __future__ import annotations

from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truthfl.page.access_secrets import AccessSecrets

MAX_BODY_BYTES = 64 * 1024
CSRF_HEADER = "x-truthfl"
SAFE_METHODS = ("GET", "HEAD")
OWN_SITE = ("same-origin", "none")  # allowed values of the header sec-fetch-site

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

FORBIDDEN_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>truthfl</title></head>
<body><main><h1>This page needs its whole address</h1>
<p>Open the link that truthfl printed where you started it. It has a token at its end that lets only you in, and it is
a new one each time truthfl starts. What you decided before is kept.</p></main></body></html>
"""
CONTINUE_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=./"><title>truthfl</title>
<link rel="icon" href="static/icon.svg"></head>
<body><p><a href="./">Go on</a></p></body></html>
"""


class Guard:
    """Middleware: responds to forbidden requests itself, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: AccessSecrets) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return None
        own_response = self._own_response(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        return await (own_response or self.app)(scope, receive, send_with_headers)

    def _own_response(self, scope: Scope) -> Response | None:
        """The response to a forbidden request or to a login; None if the application is to respond."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        host, port = headers.get("host", ""), scope["server"][1] if scope.get("server") else None
        hosts = self.access.hosts
        if host not in {f"{name}:{port}" for name in hosts} | (set(hosts) if port == 80 else set()):
            return self._forbidden("This machine is not known here by that name.", path)
        site = headers.get("sec-fetch-site", "none")
        if path == self.access.root and method == "GET" and "token" in QueryParams(scope["query_string"]):
            return self._log_in(scope, site in OWN_SITE)
        if site not in OWN_SITE:
            return self._forbidden("Another page sent this.", path)
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie_name(host), "")
        if not path.startswith(self.access.root) or not compare_digest(cookie.encode(), self.access.session.encode()):
            return self._forbidden("The page is closed; open the link that truthfl printed.", path)
        if method not in SAFE_METHODS:
            return self._forbidden_change(headers, f"{scope['scheme']}://{host}")
        return None

    def _log_in(self, scope: Scope, own_site: bool) -> Response:
        """Set the session cookie if the token is right, and go to the first page.

        own_site   False if a link on another site was followed: then a browser would not send the new cookie after an
                   HTTP redirect, so the response is a page that redirects
        """
        token = QueryParams(scope["query_string"]).get("token", "")
        if not compare_digest(token.encode(), self.access.token.encode()):
            return HTMLResponse(FORBIDDEN_PAGE, 403)
        root = self.access.root
        response: Response = RedirectResponse(root, 303) if own_site else HTMLResponse(CONTINUE_PAGE)
        name = _cookie_name(Headers(scope=scope)["host"])
        response.set_cookie(name, self.access.session, httponly=True, samesite="strict", path=root)
        return response

    def _forbidden(self, message: str, path: str) -> Response:
        """Status 403: JSON for paths that scripts request, an HTML page for others."""
        script_paths = tuple(self.access.root + folder for folder in ("api/", "samples/", "thumbs/", "static/"))
        if path.startswith(script_paths):
            return JSONResponse({"error": message}, 403)
        return HTMLResponse(FORBIDDEN_PAGE, 403)

    def _forbidden_change(self, headers: Headers, origin: str) -> Response | None:
        """The response to a POST request with a wrong origin, CSRF token or size; None if it is allowed."""
        if headers.get("origin") != origin:
            return JSONResponse({"error": "Another page sent this."}, 403)
        if not compare_digest(headers.get(CSRF_HEADER, "").encode(), self.access.csrf.encode()):
            return JSONResponse({"error": "This did not come from the page; load it again."}, 403)
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return JSONResponse({"error": "This is more than the page ever sends."}, 413)
        return None


def _cookie_name(host: str) -> str:
    """A name with the port, so that pages on two ports have different cookies."""
    return f"truthfl-{host.rsplit(':', 1)[-1]}"
