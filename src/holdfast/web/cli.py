"""`holdfast serve`: the runs and a form that starts an audit, as a web page for this machine alone."""

from __future__ import annotations

from holdfast.config.output import say
from holdfast.web.options import ServeOptions


def serve(options: ServeOptions) -> None:
    """Show the runs as a local web page: watch an audit, start one from a form, compare two.

    It answers to this machine only, and reads nothing outside ROOT and the runs. Ctrl-C ends it and what it
    started; finished work is kept.
    """
    from holdfast.core.errors import MissingExtra

    try:
        from holdfast.web.serve import serve as run
    except ModuleNotFoundError as problem:
        module = (problem.name or "").partition(".")[0]
        if module not in ("starlette", "uvicorn", "anyio"):
            raise
        raise MissingExtra("the local web page", module, "web") from problem

    def ready(address: str) -> None:
        say(f"serving  {address}  (Ctrl-C ends it)")
        _flush()
        if options.open:
            _open(address)

    run(options.root, options.runs, options.port, ready=ready)
    say("stopped")


def _flush() -> None:
    import sys

    if sys.stdout is not None:
        sys.stdout.flush()


def _open(address: str) -> None:
    """Ask the browser to open the page, without waiting for it."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
