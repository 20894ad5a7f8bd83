"""The web page as a Starlette app: its routes and handlers."""

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.core.errors import HoldfastError
from holdfast.report.html import integrity
from holdfast.web import pages, uploads
from holdfast.web.form import FIRST, UPLOADED, Places, command_of, known_values
from holdfast.web.guard import Guard, form_of
from holdfast.web.jobs import LOG, PATIENCE, AuditQueue, Command, Patience, tail
from holdfast.web.pages import Site
from holdfast.web.render import Refusal, answer, htmx, render, style
from holdfast.web.runs import comparison_page, page_of, picture_page, run_of, written_page

# A page of a run is untrusted: it runs in its own origin and cannot load or send anything. It is shown in a
# frame of our own page, whose policy allows the frame no other address: a script in it cannot navigate away.
RUN_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
LOG_SHOWN = 64 * 1024  # bytes
CACHED = {"Cache-Control": "private, max-age=3600"}  # for addresses that contain a hash of the content


def app_of(
    root: Path,
    runs: Path,
    *,
    port: int = 8765,
    key: str | None = None,
    command: Command = command_of,
    patience: Patience = PATIENCE,
) -> Starlette:
    """The app for the files below `root` and the runs in `runs`, for a server at that port.

    With a key, only a browser that opened `/?key=…` once is answered.
    """
    places = Places(root.resolve(), runs.resolve())
    site = Site(places, AuditQueue(places, command, patience), secrets.token_urlsafe(32))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(site.queue.close)

    policy = (
        f"default-src 'none'; style-src 'self'; script-src '{integrity(htmx())}'; connect-src 'self'; "
        "img-src 'self' data:; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    app = Starlette(
        routes=[
            Route("/", _index),
            Route("/progress", _progress),
            Route("/runs", _runs),
            Route("/files", _files),
            Route("/choose", _choose),
            Route("/run/{key}", _run),
            Route("/compare", _compare),
            Route("/log/{key}", _log),
            Route("/page/{key}", _page),
            Route("/picture/{name}", _picture),
            Route("/start", _start, methods=["POST"]),
            Route("/cancel", _cancel, methods=["POST"]),
            Route("/upload", _upload, methods=["POST"]),
            Route("/static/style.css", _style),
            Route("/static/htmx.js", _htmx),
        ],
        middleware=[Middleware(Guard, port=port, policy=policy, key=key)],
        exception_handlers={HTTPException: _unknown},
        lifespan=lifespan,
    )
    app.state.site = site
    return app


def _sandboxed(request: Request, page: Callable[[], str]) -> Response:
    """An untrusted page of a run: the page itself within a frame, and for a tab our page with that frame."""
    if request.headers.get("sec-fetch-dest") == "document":
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return HTMLResponse(pages.framed(address))
    headers = {"Content-Security-Policy": RUN_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return HTMLResponse(page(), headers=headers)


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def _unknown(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    line = {404: "no such page", 405: "method not allowed"}
    return answer(request.scope, line.get(status, "the request failed"), status)


def _index(request: Request) -> Response:
    text = request.query_params.get("filter", "")
    return HTMLResponse(pages.index(_site(request), _values(request), text=text))


def _values(request: Request) -> dict[str, str]:
    return FIRST | known_values(request.query_params)


def _progress(request: Request) -> Response:
    """The part of the page that is updated, for htmx; a separate page without script."""
    site, query = _site(request), request.query_params
    if request.headers.get("hx-request") != "true":
        return HTMLResponse(pages.watching(site))
    keys = ("announcement", "version", "filter")
    text, live = pages.running(site, *(query.get(key, "") for key in keys))
    return HTMLResponse(text, 200 if live else 286)  # 286 stops the polling of htmx


def _runs(request: Request) -> Response:
    return HTMLResponse(pages.run_list(_site(request), request.query_params.get("filter", "")))


def _files(request: Request) -> Response:
    part, at = request.headers.get("hx-request") == "true", request.query_params.get("at", "")
    return HTMLResponse(pages.files(_site(request), at, _values(request), part))


def _choose(request: Request) -> Response:
    """The input of the form with the file selected in the list."""
    query = request.query_params
    name = "model" if "model" in query else "data"
    hint = "selected from the files"
    return HTMLResponse(render("choice.html", name=name, value=query.get(name, ""), hint=hint))


def _run(request: Request) -> Response:
    run = run_of(_site(request).places.runs, request.path_params["key"])
    return _sandboxed(request, lambda: page_of(run))


def _compare(request: Request) -> Response:
    keys: Sequence[str] = request.query_params.getlist("run")
    if len(keys) != 2:
        raise Refusal(f"expected two runs to compare, got {len(keys)}: select two runs", 400)
    runs = _site(request).places.runs
    older, newer = sorted((run_of(runs, key) for key in keys), key=lambda run: (run.created, run.name))
    return _sandboxed(request, lambda: comparison_page(older, newer))


def _log(request: Request) -> Response:
    job = _site(request).queue.job(request.path_params["key"])
    return PlainTextResponse(tail(job.folder / LOG, LOG_SHOWN) or "no output yet\n")


def _page(request: Request) -> Response:
    text = written_page(_site(request).queue.job(request.path_params["key"]).folder)
    if text is None:
        raise Refusal("this audit has no page; see its log", 404)
    return _sandboxed(request, lambda: text)


def _picture(request: Request) -> Response:
    site, name = _site(request), request.path_params["name"]
    path = next((p for p in site.uploaded(*uploads.PICTURES.values()) if p.name == name), None)
    if path is None:
        raise Refusal("no such image; reload the page", 404)
    return _sandboxed(request, lambda: picture_page(path))


async def _start(request: Request) -> Response:
    site = _site(request)
    values = dict(await form_of(request, site.token))
    values.pop("token", None)
    try:
        await run_in_threadpool(site.queue.start, values)
    except HoldfastError as problem:
        status = problem.status if isinstance(problem, Refusal) else 400
        text = await run_in_threadpool(pages.index, site, values, str(problem))
        return HTMLResponse(text, status)
    return RedirectResponse("/#running", status_code=303)


async def _cancel(request: Request) -> Response:
    site = _site(request)
    values = dict(await form_of(request, site.token))
    await run_in_threadpool(site.queue.cancel, values.get("key", ""))
    return RedirectResponse("/#running", status_code=303)


async def _upload(request: Request) -> Response:
    site = _site(request)
    upload = await uploads.received(request, site.token)
    path = await run_in_threadpool(uploads.keep, upload, site.places.uploads)
    form = f"/?{urlencode({'model': UPLOADED + path.name})}#start"
    return RedirectResponse(form if path.suffix == ".onnx" else "/#uploads", status_code=303)


def _style(_request: Request) -> Response:
    return Response(style(), media_type="text/css", headers=CACHED)


def _htmx(_request: Request) -> Response:
    return Response(htmx(), media_type="text/javascript", headers=CACHED)
