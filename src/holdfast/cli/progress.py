"""Progress on standard error: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_SECONDS = 10.0


@contextmanager
def progress(what: str, total: int, unit: str = "images") -> Iterator[Callable[[int, int], None]]:
    """A function to call with (images done, images found finished already)."""
    if sys.stderr.isatty():
        with _bar(what, total, unit) as step:
            yield step
    else:
        yield _lines(what, total, unit)


@contextmanager
def _bar(what: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}, time left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, reused: bar.update(task, advance=done)


def _lines(what: str, total: int, unit: str) -> Callable[[int, int], None]:
    began = last = time.monotonic()
    done_so_far = worked = 0

    def step(done: int, reused: int) -> None:
        nonlocal last, done_so_far, worked
        done_so_far += done
        worked += done - reused
        now = time.monotonic()
        if now - last < EVERY_SECONDS and done_so_far < total:
            return
        last = now
        rate = worked / max(now - began, 1e-9)
        speed = f", {rate:.1f} {unit}/s" if worked else ""
        left = f", {(total - done_so_far) / rate:.0f} s left" if worked and done_so_far < total else ""
        before = done_so_far - worked
        found = f" ({before} {'was' if before == 1 else 'were'} finished already)" if before else ""
        sys.stderr.write(f"{what}: {done_so_far}/{total} {unit}{speed}{left}{found}\n")
        sys.stderr.flush()

    return step
