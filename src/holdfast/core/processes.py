"""Start of child processes that import nothing from the working directory."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

END_WITH_STDIN = "HOLDFAST_END_WITH_STDIN"  # set: the command ends when its standard input closes
SAFE_PATH = "PYTHONSAFEPATH"  # keeps the working directory off an interpreter's module path


def python(*arguments: str) -> list[str]:
    """Command line of this interpreter that imports nothing from the working directory."""
    return [sys.executable, "-P", *arguments]


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Start `multiprocessing` children in this block.

    The children import modules of the working directory only if no other has the name, and never receive
    Ctrl-C: only this process handles it. A Ctrl-C during the block is delivered when the block ends.
    """
    with _safe_path():
        if os.name == "posix":
            from multiprocessing import resource_tracker

            # First: on Python 3.11 its start unblocks the signals that the children must inherit blocked.
            resource_tracker.ensure_running()
        with defer_interrupts():
            yield


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Start `multiprocessing` children in this block that do not import the user's script.

    A script without `if __name__ == "__main__"` would otherwise start everything a second time.
    """
    main = vars(sys.modules["__main__"])
    saved: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(saved))
    try:
        yield
    finally:
        main.update(saved)


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Start new interpreters without the working directory, or with it last if it is on our path."""
    before, path = os.environ.get(SAFE_PATH), list(sys.path)
    os.environ[SAFE_PATH] = "1"
    sys.path.sort(key=lambda entry: entry == "")  # children inherit it; the sort is stable
    try:
        yield
    finally:
        sys.path[:] = path
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block; children started in it inherit SIGINT blocked."""
    came: list[int] = []
    # Another thread may receive the signal, so the handler of the main thread is replaced as well.
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if is_main else None
    if handler is not None:
        signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    has_masks = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if has_masks else set()
    try:
        yield
    finally:
        if has_masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def become_worker(parent: int) -> None:
    """Make this process a worker that ignores Ctrl-C and ends within half a second after its parent."""

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_stdin() -> None:
    """End this process and its group when standard input closes, if the environment asks for it."""
    if os.environ.pop(END_WITH_STDIN, "") != "1" or os.name != "posix":
        return

    def follow() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        for number, seconds in ((signal.SIGINT, 5.0), (signal.SIGKILL, 0.0)):
            os.killpg(0, number)
            time.sleep(seconds)

    threading.Thread(target=follow, name="end with stdin", daemon=True).start()
