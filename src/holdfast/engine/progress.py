"""Progress on standard error: a bar with the time left on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_SECONDS = 10.0
SILENT_SECONDS = 30.0  # after which a line says that it still works


@contextmanager
def progress(what: str, total: int, unit: str = "images") -> Iterator[Callable[[int, int], None]]:
    """A function to call with (images done, images found cached)."""
    if sys.stderr.isatty():
        with _bar(what, total, unit) as step:
            yield step
    else:
        lines = _Lines(what, total, unit)
        with lines.beating():
            yield lines.step


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


class _Lines:
    """Plain lines: how far it is, at most every so often; and that it still works, after a long silence."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.began = self.last = time.monotonic()
        self.done = self.worked = 0
        self.speaking = threading.Lock()

    def step(self, done: int, reused: int) -> None:
        """Count units that are done, and those of them that were finished before."""
        with self.speaking:
            self.done += done
            self.worked += done - reused
            now = time.monotonic()
            if now - self.last < EVERY_SECONDS and self.done < self.total:
                return
            rate = self.worked / max(now - self.began, 1e-9)
            speed = f", {rate:.1f} {self.unit}/s" if self.worked else ""
            left = self.total - self.done
            ahead = f", {left / rate:.0f} s left" if self.worked and left > 0 else ""
            before = self.done - self.worked
            found = f" ({before} {'was' if before == 1 else 'were'} cached)" if before else ""
            self._say(f"{speed}{ahead}{found}")

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Write a line inside the context whenever nothing was printed for SILENT_SECONDS."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(max(0.01, self.last + SILENT_SECONDS - time.monotonic())):
                with self.speaking:
                    if time.monotonic() - self.last >= SILENT_SECONDS and not over.is_set():
                        self._say(f", at work for {time.monotonic() - self.began:.0f} s")

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _say(self, more: str) -> None:
        self.last = time.monotonic()
        sys.stderr.write(f"{self.what}: {self.done}/{self.total} {self.unit}{more}\n")
        sys.stderr.flush()
