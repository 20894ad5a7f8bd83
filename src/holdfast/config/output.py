"""Output files: checked before a run, written after it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from holdfast.core.errors import OutputError


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print the text, unless the process was started with that stream closed."""
    stream = sys.stdout if stream is None else stream
    if stream is not None:
        stream.write(text + end)


def write_json(path: Path, value: Any) -> None:
    """Write the value as JSON; raise OutputError if it cannot be written.

    A file is replaced as a whole, a device or a pipe is written to. Standard output (/dev/stdout) gets the
    JSON after what was printed before, even if it is redirected to a file.
    """
    from holdfast.engine.store import to_json, write_atomic

    data = to_json(value, indent=True)
    if not _is_standard_output(path):
        write_atomic(path, data, durable=False)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def check_writable(path: Path, label: str = "") -> None:
    """Raise OutputError now, before hours of work, if this file cannot be created.

    Missing folders are not created: their nearest parent that exists is tried. `label` is what the message
    names instead of the path.
    """
    import tempfile

    try:
        if not is_replaced(path):
            return
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        folder = next(parent for parent in target.parents if os.path.lexists(parent))
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        raise OutputError(
            f"{label or path}: cannot write: {problem.strerror or problem}; choose another folder"
        ) from problem


def is_replaced(path: Path) -> bool:
    """Whether a result replaces the file at this path; a device, a pipe and standard output are written to.

    Raise OSError if that cannot be known, as in a folder that may not be entered.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return True
    return path.is_file() and not _is_standard_output(path)


def _is_standard_output(path: Path) -> bool:
    try:
        return sys.stdout is not None and os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except OSError:
        return False


def check_outputs(files: Mapping[str, Path | None], folders: Mapping[str, Path | None]) -> None:
    """Raise OutputError now, before a long run, if an output of these flags cannot be written.

    Two flags must not name one file, because the second would replace the first.
    """
    for flag, file in files.items():
        if file is not None and file.is_dir():
            example = file / ("numbers.json" if flag == "--json" else "report.html")
            raise OutputError(f"{flag} {file}: is a folder; give the name of a file, such as {example}")
        if file is not None:
            check_writable(file, f"{flag} {file}")
    for flag, folder in folders.items():
        if folder is not None and folder.exists() and not folder.is_dir():
            raise OutputError(f"{flag} {folder}: is a file; give the name of a folder")
        if folder is not None:
            check_writable(folder / "file", f"{flag} {folder}")
    flags: dict[str, str] = {}
    for flag, path in {**files, **folders}.items():
        if path is None or not (path.is_dir() or is_replaced(path)):
            continue  # several can write to one device or stream
        earlier = flags.setdefault(os.path.realpath(path), f"{flag} {path}")
        if earlier != f"{flag} {path}":
            raise OutputError(f"{earlier} and {flag} {path}: are the same path; give two different ones")
