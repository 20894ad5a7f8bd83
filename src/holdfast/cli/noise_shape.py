"""How the tables of a noise run are shown: text, CSV, Markdown, LaTeX, and JSON to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.output import say, write_json

if TYPE_CHECKING:
    from holdfast.report.tables import Table
    from holdfast.run.noise.result import Suite


class Shape(NamedTuple):
    """How tables are shown."""

    csv: bool = False
    markdown: bool = False
    latex: bool = False
    json: Path | None = None
    out: Path | None = None

    def check(self) -> None:
        """Nothing, or InputError if two ways are asked for at once or a file cannot be one."""
        from holdfast.core.errors import InputError

        if sum((self.csv, self.markdown, self.latex)) > 1:
            raise InputError("expected one of --csv, --markdown and --latex, not several")
        if self.json and self.json.is_dir():
            raise InputError(f"--json {self.json}: is a folder; give the name of a file")
        if self.out and self.out.is_dir():
            raise InputError(
                f"{self.out}: is a folder; give the name of the page, such as {self.out / 'noise.html'}"
            )
        for option, file in (("--json", self.json), ("--out", self.out)):
            if file:
                _check_place(option, file)

    def table(self, table: Table) -> None:
        """Nothing; the table is printed."""
        from holdfast.report.tables import to_csv, to_latex, to_markdown, to_text

        if self.csv:
            return say(to_csv(table), end="")
        return say((to_latex if self.latex else to_markdown if self.markdown else to_text)(table))

    def show(self, made: Suite) -> None:
        """Nothing; the tables are printed, and written as JSON if asked for."""
        from holdfast.report.noise_tables import families_table, models_csv, models_table, options_table
        from holdfast.run.noise.result import as_plain

        if self.json:
            write_json(self.json, as_plain(made))
        if self.csv:
            return self.table(models_csv(made))
        for model in made.models:
            self.table(options_table(model))
            say("")
            self.table(families_table(model))
            say("")
        return self.table(models_table(made))


def _check_place(option: str, file: Path) -> None:
    """Nothing, or OutputError if the file cannot be written: better before a long run than after it."""
    from holdfast.core.errors import OutputError

    there = next((folder for folder in file.absolute().parents if folder.exists()), None)
    if there is None or not there.is_dir():
        raise OutputError(f"{option} {file}: {there} is no folder; choose another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(f"{option} {file}: {there} cannot be written to; choose another folder")
