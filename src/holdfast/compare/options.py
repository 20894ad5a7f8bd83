"""The options of `holdfast compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config.options import Argument, Option, Options


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options, command="compare"):
    """The options of `holdfast compare`."""

    run_a: Annotated[
        Path, Argument("Run before: evaluation, noise suite, attack or audit; its folder or manifest.")
    ]
    run_b: Annotated[Path, Argument("Run after, of the same kind, on the same data.")]
    json: Annotated[Path | None, Option("Write all rows to this JSON file.")] = None
    markdown: Annotated[bool, Option("Print the tables as Markdown.")] = False
    out: Annotated[Path | None, Option("Also write one HTML page.", short="-o")] = None
