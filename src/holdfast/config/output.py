"""Writing results where the user asked for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO

_LINKS = 40  # followed one after another, as Linux does


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Nothing; the text is printed, unless the process was begun with that stream closed."""
    stream = sys.stdout if stream is None else stream
    if stream is not None:
        stream.write(text + end)


def write_json(path: Path, value: Any) -> None:
    """Nothing; the value is in the file, whole, or OutputError says why not.

    /dev/stdout and its like are written to after what was printed, also where they lead to a file.
    """
    from holdfast.engine.store import to_json, write_atomic

    number = descriptor_of(path)
    if number is None:
        return write_atomic(path, to_json(value, indent=True), durable=False)
    return _write_on(path, number, to_json(value, indent=True))


def check_writable(path: Path) -> None:
    """Nothing; OutputError now, before hours of work, if a file cannot be made where this one is to be.

    Nothing is left behind: folders that are still missing are not made, but their nearest parent is tried.
    """
    import tempfile

    from holdfast.core.errors import OutputError

    try:
        if not is_replaced(path):
            return _check_open(path)
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        folder = next(parent for parent in target.parents if os.path.lexists(parent))
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        raise OutputError(
            f"{path}: cannot write there: {problem.strerror}; choose another folder"
        ) from problem


def is_replaced(path: Path) -> bool:
    """Whether a result is put there as a new file; not so for a device, a pipe or an open stream.

    OSError if that cannot be known, as in a folder that may not be entered.
    """
    if descriptor_of(path) is not None:
        return False
    try:
        path.stat()
    except FileNotFoundError:
        return True
    return path.is_file()


def descriptor_of(path: Path) -> int | None:
    """The number of the stream of this process that a name such as /dev/stdout or /dev/fd/3 stands for."""
    streams = {os.path.realpath(folder) for folder in ("/dev/fd", "/proc/self/fd")}
    for _ in range(_LINKS):
        if path.name.isdecimal() and os.path.realpath(path.parent) in streams:
            return int(path.name)
        try:
            path = path.parent / path.readlink()
        except OSError:  # no link
            return None
    return None


def _check_open(path: Path) -> None:
    """Nothing; OSError if it stands for a stream that is closed or only read."""
    number = descriptor_of(path)
    if number is None:
        return
    import errno
    import fcntl

    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "it is only read from")


def _write_on(path: Path, number: int, data: bytes) -> None:
    from holdfast.core.errors import OutputError

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None: begun with it closed
            stream.flush()
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(number, view) :]
    except OSError as problem:
        if number == 1 and isinstance(problem, BrokenPipeError):
            raise  # as if it were printed: nobody reads on
        raise OutputError(f"{path}: could not be written: {problem.strerror}") from problem
