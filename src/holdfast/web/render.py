"""Templates of the web page in the report's style, and the response to a rejected request."""

from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from holdfast.core.errors import HoldfastError, MissingExtra
from holdfast.report.parts import environment

_HTMX = ("htmx-2.min.js", "htmx.min.js")  # names of htmx 2 in releases of the package that ships it


def render(template: str, **values: Any) -> str:
    """The markup of a template."""
    return environment("holdfast.web").get_template(template).render(**values)


@cache
def style() -> str:
    """The style sheets of the report and of the web page."""
    report = resources.files("holdfast.report").joinpath("templates", "style.css")
    own = resources.files("holdfast.web").joinpath("templates", "web.css")
    return report.read_text("utf-8") + "\n" + own.read_text("utf-8")


@cache
def htmx() -> str:
    """The text of htmx, from the installed package that ships it, which is not imported."""
    try:
        files = metadata.files("django-htmx") or []
    except metadata.PackageNotFoundError:
        raise MissingExtra("the local web page", "htmx (of django-htmx)", "web") from None
    known = {Path(str(file)).name: file for file in files}
    for name in _HTMX:
        if name in known:
            return known[name].read_text("utf-8")
    raise MissingExtra("the local web page", "htmx 2 (of django-htmx 1.23 or later)", "web")


class Refusal(HoldfastError):
    """A rejected request, with its HTTP status."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status


def answer(scope: Scope, line: str, status: int) -> Response:
    """The line as a page, or as a fragment for htmx."""
    part = Headers(scope=scope).get("hx-request") == "true"
    name = "line.html" if part else "error.html"
    return HTMLResponse(render(name, line=line, title="Not done", status=status), status)
