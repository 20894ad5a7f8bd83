"""Access control: only a browser of this user, from this page. Other requests are rejected before routing."""

import contextlib
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import HoldfastError
from holdfast.web.render import Refusal, answer

FORM_LIMIT = 64 * 1024  # bytes of a form without a file
HOSTS = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Guard:
    """ASGI middleware: checks Host and Origin, adds headers, and reports every error in one line."""

    app: ASGIApp
    port: int
    policy: str  # the content security policy of our own pages
    key: str | None = None  # of the address that the server printed; None: anybody on this machine may ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or reject it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websockets
        response_started = False

        async def with_headers(message: Message) -> None:
            nonlocal response_started
            if message["type"] == "http.response.start":
                response_started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("Content-Security-Policy", self.policy)
            await send(message)

        try:
            check(scope, self.port)
            if self.key is not None and not has_cookie(scope, self.port, self.key):
                await entry(scope, self.port, self.key)(scope, receive, with_headers)
                return
            await self.app(scope, receive, with_headers)
        except Exception as problem:  # noqa: BLE001 - the last line of defence: no traceback on a page
            line, status = f"internal error, please report it ({type(problem).__name__})", 500
            if isinstance(problem, HoldfastError):
                line, status = str(problem), problem.status if isinstance(problem, Refusal) else 400
            if not response_started:
                await answer(scope, line, status)(scope, receive, with_headers)


def check(scope: Scope, port: int) -> None:
    """Raise Refusal for a foreign Host, a page of another site, or an unsupported method."""
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    allowed_hosts = {f"{host}:{port}" for host in HOSTS} | set(HOSTS if port == 80 else ())
    if len(hosts) != 1 or hosts[0].lower() not in allowed_hosts:  # rejects DNS rebinding
        raise Refusal(f"expected the Host localhost:{port} or 127.0.0.1:{port}", 400)
    if scope["method"] not in ("GET", "HEAD", "POST"):
        raise Refusal("expected GET or POST", 405)
    site = headers.get("sec-fetch-site")
    if scope["method"] == "POST":
        # With `Referrer-Policy: no-referrer` a browser sends `Origin: null` with our own forms too. It is
        # accepted only if Sec-Fetch-Site, which pages cannot set, is same-origin.
        origin = headers.get("origin")
        same_origin = origin is not None and origin.lower() == f"http://{hosts[0].lower()}"
        trusted = site == "same-origin" and (same_origin or origin in (None, "null"))
        if not (same_origin if site is None else trusted):
            raise Refusal("expected a form from this page, not from another site", 403)
    elif site in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
        raise Refusal("other sites may link to this page, but not load parts of it", 403)


def has_cookie(scope: Scope, port: int, key: str) -> bool:
    """Whether the request carries the cookie of this server process."""
    cookies: SimpleCookie = SimpleCookie()
    for header in Headers(scope=scope).getlist("cookie"):
        with contextlib.suppress(CookieError):
            cookies.load(header)
    given = cookies.get(cookie_name(port))
    return given is not None and _equal(given.value, key)


def cookie_name(port: int) -> str:
    """The name of the cookie; browsers share cookies between the ports of one host."""
    return f"holdfast-{port}"


def entry(scope: Scope, port: int, key: str) -> Response:
    """The answer to a request without the cookie: the cookie for the printed address, else a refusal."""
    given = parse_qs(scope["query_string"].decode("latin-1")).get("key", [""])[0]
    if scope["path"] != "/" or not _equal(given, key):
        line = "open the address that `holdfast serve` printed when it started; it contains a key"
        return answer(scope, line, 403)
    response = RedirectResponse("/", status_code=303)  # the key leaves the address line
    response.set_cookie(cookie_name(port), key, httponly=True, samesite="strict", path="/")
    return response


def _equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), expected.encode())


async def form_of(request: Request, token: str) -> list[tuple[str, str]]:
    """The fields of a small form with our token. Raise Refusal if it is too long or the token differs."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise Refusal("expected a form", 415)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_LIMIT:
            raise Refusal(f"expected a form of at most {FORM_LIMIT} bytes", 413)
    try:
        fields = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise Refusal("expected a form in UTF-8 with at most 100 fields", 400) from None
    check_token(dict(fields).get("token", ""), token)
    return fields


def check_token(given: str, token: str) -> None:
    """Raise Refusal if the form does not come from this server process."""
    if not _equal(given, token):
        raise Refusal("this form is from an earlier run of the server; reload the page", 403)
