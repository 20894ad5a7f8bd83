"""The options of `holdfast run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config.options import Argument, Option
from holdfast.evaluate.options import RunOptions


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(RunOptions, command="run"):
    """The options of `holdfast run`."""

    file: Annotated[Path | None, Argument("A TOML file: models, data, conditions.", metavar="EXPERIMENT")] = (
        None
    )
    only: Annotated[
        tuple[str, ...], Option("Only this condition, by its name. May be repeated.", metavar="NAME")
    ] = ()
    dry_run: Annotated[bool, Option("Read the file, open models and data, and print what would run.")] = False
    schema: Annotated[bool, Option("Print the JSON schema of such files.")] = False
    json: Annotated[Path | None, Option("Write everything to this JSON file.")] = None
    out: Annotated[Path | None, Option("Also write the page here.", short="-o", metavar="PAGE")] = None
