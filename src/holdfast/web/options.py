"""The options of `holdfast serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config.options import Argument, Option, Options


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Options, command="serve"):
    """The options of `holdfast serve`."""

    root: Annotated[Path, Argument("Folder whose models and data may be chosen.")] = Path()
    runs: Annotated[Path, Option("Folder of the runs.", metavar="FOLDER")] = Path("holdfast-runs")
    port: Annotated[int, Option("Port on this machine (0 = any free one).", least=0, most=65535)] = 8765
    open: Annotated[bool, Option("Open the page in the browser.")] = True
