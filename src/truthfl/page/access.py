"""Who may use the page: secrets, one-time links, and the origin of requests.

Other programs, other users of the machine and other sites in the browser can reach a port of this machine. All URLs
begin with a random path; a random token in the first URL is exchanged for a cookie for that path. Every request must
have this machine as its host (against DNS rebinding) and the page as its origin; one that changes data must have a CSRF
token. The number of wrong tokens per minute is limited, so the first token cannot be guessed. The person who started
the page learns who opens it and who tries in vain.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truthfl.page.catalogue import ENGLISH, in_english
from truthfl.page.catalogue import Message as Sentence
from truthfl.page.files import localized_file

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class AccessSecrets:
    """New secrets for each start of the page.

    path      prefix of all URLs. A browser sends a cookie to all ports of a host, but only below the cookie's path:
              without the prefix, another server on this machine could receive it
    token     in the first URL; exchanged for the session cookie
    session   value of the session cookie
    csrf      value of the header that POST requests must have
    hosts     accepted names of this machine
    one_time  checks a token that admits one device only; None if the token can be used again
    """

    path: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    token: str = field(default_factory=_secret, repr=False)
    session: str = field(default_factory=_secret, repr=False)
    csrf: str = field(default_factory=_secret, repr=False)
    hosts: tuple[str, ...] = LOOPBACK
    one_time: OneTimeLogin | None = None

    @property
    def root(self) -> str:
        return f"/{self.path}/"


VALID_SECONDS = 600.0
MINUTE = 60.0
MOST_WRONG, MOST_WRONG_IN_ALL = 10, 100  # wrong tokens in a minute, from one address and from all
MOST_TOLD = 20  # in a minute


class LoginOutcome(StrEnum):
    """What happens to a device that opens the link."""

    LET_IN = "let in"
    WRONG = "wrong"
    USED = "used"
    EXPIRED = "expired"
    TOO_MANY = "too many"


class OneTimeLogin:
    """The state of one token: whether it was used, when it expires, who tried a wrong one. For one thread only.

    tell   called with the outcome and the device's address, at most once a minute for the same pair
    clock  seconds
    """

    def __init__(
        self, token: str, tell: Callable[[LoginOutcome, str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._token, self._tell, self._clock = token, tell, clock
        self._expires = clock() + VALID_SECONDS
        self._used = False
        self._wrong: deque[tuple[float, str]] = deque()  # when, from which address
        self._told: deque[tuple[float, tuple[LoginOutcome, str]]] = deque()

    def attempt(self, token: str, address: str) -> LoginOutcome:
        """The outcome for a device at this address with this token; admitting the device spends the token."""
        now = self._clock()
        _forget(self._wrong, now)
        outcome = self._outcome(token, address, now)
        if outcome is LoginOutcome.LET_IN:
            self._used = True
        elif outcome is LoginOutcome.WRONG:
            self._wrong.append((now, address))
        _forget(self._told, now)
        if (outcome, address) not in (pair for _, pair in self._told) and len(self._told) < MOST_TOLD:
            self._told.append((now, (outcome, address)))
            self._tell(outcome, address)
        return outcome

    def _outcome(self, token: str, address: str, now: float) -> LoginOutcome:
        own = sum(other == address for _, other in self._wrong)
        if own >= MOST_WRONG or len(self._wrong) >= MOST_WRONG_IN_ALL:
            return LoginOutcome.TOO_MANY
        if not compare_digest(token.encode(), self._token.encode()):
            return LoginOutcome.WRONG
        if self._used:
            return LoginOutcome.USED
        return LoginOutcome.EXPIRED if now >= self._expires else LoginOutcome.LET_IN


def _forget(events: deque[tuple[float, str]] | deque[tuple[float, tuple[LoginOutcome, str]]], now: float) -> None:
    """Remove what is older than a minute."""
    while events and events[0][0] <= now - MINUTE:
        events.popleft()


MAX_BODY_BYTES = 64 * 1024
TOO_MUCH = Sentence("error.too_much")
CSRF_HEADER = "x-truthfl"
DEFAULT_PORTS = {"http": 80, "https": 443}  # browsers leave these out of the host
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
FORBIDDEN = ("forbidden.title", "forbidden.words", 403)  # keys of a notice, and the status
REFUSALS = {  # of a link that admits one device
    LoginOutcome.WRONG: ("link_wrong.title", "link_wrong.words", 403),
    LoginOutcome.USED: ("link_used.title", "link_used.words", 403),
    LoginOutcome.EXPIRED: ("link_expired.title", "link_expired.words", 403),
    LoginOutcome.TOO_MANY: ("link_guessed.title", "link_guessed.words", 429),
}


class Guard:
    """Middleware: responds to forbidden requests itself, and adds security headers to every response."""

    def __init__(
        self,
        app: ASGIApp,
        access: AccessSecrets,
        language_for: Callable[[str], str] = lambda _: ENGLISH,
        page_after_login: Callable[[], str] = lambda: "",
    ) -> None:
        """What the application decides.

        language_for      the language of the guard's own pages, for an Accept-Language header
        page_after_login  its path below the root; "" for the root itself
        """
        self.app, self.access = app, access
        self.language_for, self.page_after_login = language_for, page_after_login

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
        """The response to a forbidden request or to a login; None if the application should respond."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        host, port = headers.get("host", ""), scope["server"][1] if scope.get("server") else None
        hosts, is_default = self.access.hosts, port == DEFAULT_PORTS.get(scope["scheme"])
        if host not in {f"{name}:{port}" for name in hosts} | (set(hosts) if is_default else set()):
            return self._forbidden("This machine is not known here by that name.", path, headers)
        site = headers.get("sec-fetch-site", "none")
        if path == self.access.root and method == "GET" and "token" in QueryParams(scope["query_string"]):
            return self._log_in(scope, site in OWN_SITE)
        if site not in OWN_SITE:
            return self._forbidden("Another page sent this.", path, headers)
        if not path.startswith(self.access.root) or not self._has_session(headers):
            return self._forbidden("The page is closed; open the link that truthfl printed.", path, headers)
        if method not in SAFE_METHODS:
            return self._forbidden_change(headers, f"{scope['scheme']}://{host}")
        return None

    def _log_in(self, scope: Scope, own_site: bool) -> Response:
        """Set the session cookie if the token is right, and go to the first page.

        own_site   False if a link on another site was followed: then a browser would not send the new cookie after an
                   HTTP redirect, so the response is a page that redirects
        """
        headers, root = Headers(scope=scope), self.access.root
        refusal = self._refused_login(scope, headers)
        if refusal is not None:
            return refusal
        response: Response = (
            RedirectResponse(root + self.page_after_login(), 303)
            if own_site
            else self._own_page("continue.html", headers)
        )
        name = _cookie_name(headers["host"])
        secure = scope["scheme"] == "https"
        response.set_cookie(name, self.access.session, httponly=True, samesite="strict", path=root, secure=secure)
        return response

    def _refused_login(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to a token that admits nobody; None if it admits the device."""
        token, one_time = QueryParams(scope["query_string"]).get("token", ""), self.access.one_time
        if one_time is None:
            right = compare_digest(token.encode(), self.access.token.encode())
            return None if right else self._notice(*FORBIDDEN, headers)
        if self._has_session(headers):  # the admitted device opens the link again
            return None
        if "prefetch" in headers.get("sec-purpose", ""):  # the browser only guesses that the link will be opened
            return self._notice(*FORBIDDEN, headers)
        outcome = one_time.attempt(token, scope["client"][0] if scope.get("client") else "")
        return None if outcome is LoginOutcome.LET_IN else self._notice(*REFUSALS[outcome], headers)

    def _has_session(self, headers: Headers) -> bool:
        """Whether a request has the session cookie."""
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie_name(headers.get("host", "")), "")
        return compare_digest(cookie.encode(), self.access.session.encode())

    def _forbidden(self, message: str, path: str, headers: Headers) -> Response:
        """Status 403: JSON for paths that scripts request, an HTML page for others."""
        script_paths = tuple(self.access.root + folder for folder in ("api/", "samples/", "thumbs/", "static/"))
        if path.startswith(script_paths):
            return JSONResponse({"error": message}, 403)
        return self._notice(*FORBIDDEN, headers)

    def _notice(self, title: str, words: str, status: int, headers: Headers) -> Response:
        return self._own_page("notice.html", headers, status, title=title, words=words)

    def _own_page(self, name: str, headers: Headers, status: int = 200, **keys: str) -> Response:
        language = self.language_for(headers.get("accept-language", ""))
        return HTMLResponse(localized_file(name, language, **keys).content, status, {"vary": "Accept-Language"})

    def _forbidden_change(self, headers: Headers, origin: str) -> Response | None:
        """The response to a POST request with a wrong origin, CSRF token or size; None if it is allowed."""
        if headers.get("origin") != origin:
            return JSONResponse({"error": "Another page sent this."}, 403)
        if not compare_digest(headers.get(CSRF_HEADER, "").encode(), self.access.csrf.encode()):
            return JSONResponse({"error": "This did not come from the page; load it again."}, 403)
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return JSONResponse({"error": in_english(TOO_MUCH), "message": asdict(TOO_MUCH)}, 413)
        return None


def _cookie_name(host: str) -> str:
    """A name with the port, so that pages on two ports have different cookies."""
    return f"truthfl-{host.rsplit(':', 1)[-1]}"
