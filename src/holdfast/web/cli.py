"""`holdfast serve`: the runs and a form that starts an audit, as a web page for this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.config.args import Argument, Option
from holdfast.config.output import say


def serve(
    root: Annotated[Path, Argument("The folder whose models and data may be chosen.")] = Path(),
    runs: Annotated[Path, Option("The folder of the runs.", shown="FOLDER")] = Path("holdfast-runs"),
    port: Annotated[int, Option("The port on this machine; 0: any free one.", least=0, most=65535)] = 8765,
    show: Annotated[bool, Option("Open the page in the browser.", "--open")] = True,
) -> None:
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
        if show:
            _open(address)

    run(root, runs, port, ready=ready)
    say("stopped")


def _flush() -> None:
    import sys

    if sys.stdout is not None:
        sys.stdout.flush()


def _open(address: str) -> None:
    """Nothing; the browser is asked to open the page, without waiting for it."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
