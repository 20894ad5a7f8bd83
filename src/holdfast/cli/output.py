"""Writing results where the user asked for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Nothing; the value is in the file, whole, or OutputError says why not."""
    from holdfast.run.store import to_json, write_atomic

    write_atomic(path, to_json(value, indent=True), durable=False)
