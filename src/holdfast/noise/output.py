"""How the tables of a noise run are shown: text, CSV, Markdown, LaTeX, and JSON to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.config.output import check_writable, is_replaced, say, write_json

if TYPE_CHECKING:
    from holdfast.noise.vision.result import Suite
    from holdfast.report.tables import Table


class Shape(NamedTuple):
    """How tables are shown, and where what comes of the run is written."""

    csv: bool = False
    markdown: bool = False
    latex: bool = False
    json: Path | None = None
    out: Path | None = None
    runs: Path | None = None

    def check(self) -> None:
        """Nothing; an error now if two ways are asked for at once, or if something cannot be written."""
        from holdfast.core.errors import InputError

        if sum((self.csv, self.markdown, self.latex)) > 1:
            raise InputError("expected one of --csv, --markdown and --latex, not several")
        if self.json:
            check_file("--json", self.json, "numbers.json")
        if self.out:
            check_file("--out", self.out, "noise.html")
        if self.runs:
            check_folder("--runs", self.runs)
        check_apart({"--json": self.json, "--out": self.out, "--runs": self.runs})

    def table(self, table: Table) -> None:
        """Nothing; the table is printed."""
        from holdfast.report.tables import to_csv, to_latex, to_markdown, to_text

        if self.csv:
            return say(to_csv(table), end="")
        return say((to_latex if self.latex else to_markdown if self.markdown else to_text)(table))

    def show(self, made: Suite) -> None:
        """Nothing; the tables are printed, and written as JSON if asked for."""
        from holdfast.noise.vision.result import as_plain
        from holdfast.noise.vision.tables import families_table, models_csv, models_table, options_table

        if self.csv:
            self.table(models_csv(made))
        else:
            for model in made.models:
                self.table(options_table(model))
                say("")
                self.table(families_table(model))
                say("")
            self.table(models_table(made))
        if self.json:
            write_json(self.json, as_plain(made))


def check_file(option: str, file: Path, such_as: str) -> None:
    """Nothing; OutputError now, before a long run, if the file of that option cannot be written."""
    from holdfast.core.errors import OutputError

    if file.is_dir():
        raise OutputError(f"{option} {file}: is a folder; give the name of a file, such as {file / such_as}")
    _check_place(option, file, file)


def check_folder(option: str, folder: Path) -> None:
    """Nothing; OutputError now, before a long run, if nothing can be written into the folder."""
    from holdfast.core.errors import OutputError

    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{option} {folder}: is a file; give the name of a folder")
    _check_place(option, folder, folder / "file")


def check_apart(places: dict[str, Path | None]) -> None:
    """Nothing; OutputError if two options name one place, where the second would replace the first."""
    import os

    from holdfast.core.errors import OutputError

    seen: dict[str, str] = {}
    for option, path in places.items():
        if path is None or not (path.is_dir() or is_replaced(path)):
            continue  # several can write to one device or stream
        earlier = seen.setdefault(os.path.realpath(path), f"{option} {path}")
        if earlier != f"{option} {path}":
            raise OutputError(f"{earlier} and {option} {path}: are one and the same; give two names")


def _check_place(option: str, given: Path, file: Path) -> None:
    """Nothing, or OutputError with the words of the command line in the place of a file that was tried."""
    from holdfast.core.errors import OutputError

    try:
        check_writable(file)
    except OutputError as problem:
        why = getattr(problem.__cause__, "strerror", None) or str(problem)
        raise OutputError(f"{option} {given}: cannot write there: {why}; choose another folder") from problem
