"""`holdfast serve`: a local web page with the runs and a form that starts an audit."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config.options import Argument, Option, Options
from holdfast.config.output import say


@dataclass(frozen=True, kw_only=True)
class ServeOptions(
    Options, command="serve", examples=("holdfast serve", "holdfast serve --port 9000 --no-open")
):
    """The options of `holdfast serve`."""

    root: Annotated[Path, Argument("Folder with models and datasets.")] = Path()
    runs: Annotated[Path, Option("Folder of the runs.", metavar="FOLDER")] = Path("holdfast-runs")
    port: Annotated[int, Option("Port on this machine (0 = any free one).", least=0, most=65535)] = 8765
    open: Annotated[bool, Option("Open the page in the browser.")] = True
    token: Annotated[bool, Option("Require the key in the printed address.")] = True


def serve(options: ServeOptions) -> None:
    """Show the runs on a local web page: start an audit, watch its progress, compare two runs.

    The server answers only to this machine and reads only ROOT and the runs. The printed address contains a
    key, so that no other user of this machine can open the page. Ctrl-C stops the server and its audits;
    completed work is saved.
    """
    import threading
    import webbrowser

    from holdfast.core.extras import check

    check("the local web page", "starlette", "uvicorn", "python_multipart", "django_htmx")
    from holdfast.web.serve import serve as run

    def ready(address: str) -> None:
        say(f"serving  {address}  (Ctrl-C to stop)")
        if sys.stdout is not None:
            sys.stdout.flush()
        if options.open:  # in a thread, to not wait for the browser
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    run(options.root, options.runs, options.port, ready=ready, token=options.token)
    say("stopped")
