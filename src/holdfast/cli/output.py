"""Writing results where the user asked for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Nothing; the value is in the file, whole, or OutputError says why not."""
    import orjson

    from holdfast.run.store import write_atomic

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    write_atomic(path, orjson.dumps(value, default=list, option=options))  # list: a Size
