"""A request that is not served: its line and its status, as an error and as a page."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from holdfast.core.errors import HoldfastError
from holdfast.web.render import render


class Refusal(HoldfastError):
    """A request that is refused, with the HTTP status that says why."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status


def answer(scope: Scope, line: str, status: int) -> Response:
    """The line as a page; as a fragment if htmx asked for one."""
    part = Headers(scope=scope).get("hx-request") == "true"
    name = "line.html" if part else "error.html"
    return HTMLResponse(render(name, line=line, title="Not done", status=status), status)
