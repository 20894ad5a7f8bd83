"""Progress of the public functions: a line in a notebook, lines on standard error if asked for, else none."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from holdfast.engine.executor import Progress
from holdfast.engine.executor import progress as terminal
from holdfast.noise.suite import no_progress

Watch: TypeAlias = Callable[..., AbstractContextManager[Progress]]
EVERY_SECONDS = 0.25


def watch(progress: bool | None) -> Watch:
    """How work shows its progress: None means a line in a notebook and nothing elsewhere."""
    if progress is None:
        return notebook if _in_notebook() else no_progress
    if not progress:
        return no_progress
    return notebook if _in_notebook() else terminal


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


@contextmanager
def notebook(what: str, total: int, unit: str = "images") -> Iterator[Progress]:
    """One line of output that is updated in place, and removed at the end."""
    display = importlib.import_module("IPython.display").display
    done, last = 0, 0.0
    handle: Any = display({"text/plain": f"{what}: 0 of {total} {unit}"}, raw=True, display_id=True)

    def step(more: int, cached: int) -> None:
        nonlocal done, last
        done += more
        now = time.monotonic()
        if handle is not None and (now - last >= EVERY_SECONDS or done >= total):
            last = now
            handle.update({"text/plain": f"{what}: {done} of {total} {unit}"}, raw=True)

    yield step
    if handle is not None:
        handle.update({"text/plain": ""}, raw=True)
