"""Writing results where the user asked for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TextIO


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Nothing; the text is printed, unless the process was begun with that stream closed."""
    stream = sys.stdout if stream is None else stream
    if stream is not None:
        stream.write(text + end)


def write_json(path: Path, value: Any) -> None:
    """Nothing; the value is in the file, whole, or OutputError says why not."""
    from holdfast.run.store import to_json, write_atomic

    write_atomic(path, to_json(value, indent=True), durable=False)


def check_writable(path: Path) -> None:
    """Nothing; OutputError now, before hours of work, if a file cannot be made where this one is to be."""
    import os

    from holdfast.run.store import write_atomic

    if path.exists() and not path.is_file():
        return  # a device or a pipe
    probe = path.with_name(f".holdfast-{os.getpid()}")
    write_atomic(probe, b"", durable=False)
    probe.unlink(missing_ok=True)
