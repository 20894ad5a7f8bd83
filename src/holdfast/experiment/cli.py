"""`holdfast run`: an experiment from one TOML file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.config.args import Argument, Option
from holdfast.config.output import say
from holdfast.evaluate.cli import Jobs, Runs

if TYPE_CHECKING:
    from holdfast.experiment.bench import Bench, Piece
    from holdfast.experiment.result import Findings, Line

PAGES = "pages"  # of the pieces, in the experiment's folder


def run(
    file: Annotated[Path | None, Argument("A TOML file: models, data, conditions.", "EXPERIMENT")] = None,
    only: Annotated[
        tuple[str, ...], Option("Only this condition, by its name. May be repeated.", shown="NAME")
    ] = (),
    dry_run: Annotated[bool, Option("Read the file, open models and data, say what would be run.")] = False,
    schema: Annotated[bool, Option("Print the JSON schema of such files.")] = False,
    out: Annotated[Path | None, Option("Write the page here too.", short="-o", shown="PAGE")] = None,
    json: Annotated[Path | None, Option("Write everything to this JSON file.")] = None,
    runs: Runs = Path("holdfast-runs"),
    jobs: Jobs = 0,
) -> int:
    """Run an experiment: every condition for every model on every data set, from one TOML file.

    Paths in it are relative to it; docs/experiment.md has all of its fields. Killed at any point, the same
    command goes on. Exit code 1: a gate failed. 4: a piece failed, or some images did. 2: bad input.
    """
    from holdfast.core.errors import InputError, OutputError

    if schema:
        return _schema(file)
    if file is None:
        raise InputError("expected the TOML file of an experiment, or --schema; see holdfast run --help")
    for path in (out, json):
        if path is not None and path.is_dir():
            raise OutputError(f"{path}: is a folder; give the name of a file in it")
    from holdfast.experiment.bench import Bench
    from holdfast.experiment.read import read_experiment
    from holdfast.experiment.run import execute
    from holdfast.noise.cli import watch

    bench = Bench(read_experiment(file), runs, jobs, watch, lambda line: say(line, sys.stderr))
    if dry_run:
        return _planned(bench, only)
    command = shlex.join(["holdfast", *sys.argv[1:]])
    return _shown(
        execute(bench, only, _begin, lambda *piece: _page(bench, *piece), command), bench, out, json
    )


def _schema(file: Path | None) -> int:
    import json as text

    from holdfast.core.errors import InputError
    from holdfast.experiment.schema import schema

    if file is not None:
        raise InputError(f"--schema is of every experiment; leave out {file}")
    say(text.dumps(schema(), indent=2, ensure_ascii=False))
    return 0


def _planned(bench: Bench, only: tuple[str, ...]) -> int:
    from holdfast.experiment.page import plan_table
    from holdfast.experiment.run import planned
    from holdfast.report.tables import to_text

    lines = planned(bench, only)
    say(to_text(plan_table(lines)))
    return 4 if any(line.state == "failed" for line in lines) else 0


def _begin(piece: Piece, number: int, of: int) -> None:
    say(f"[{number}/{of}] {piece.title}", sys.stderr)


def _page(bench: Bench, piece: Piece, made: Any, line: Line) -> Path | None:
    """The page of a finished piece; None if it has none."""
    from holdfast.experiment.run import experiment_folder

    name = "-".join(filter(None, (line.model, line.data, line.condition)))
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:150]
    out = experiment_folder(bench) / PAGES / f"{plain}.html"
    if piece.condition.do == "evaluate":
        from holdfast.evaluate.page import write
        from holdfast.evaluate.pictures import pictures

        return write(made, out, pictures(made))
    if piece.condition.do == "noise":
        from holdfast.noise.vision.page import write as write_noise

        return write_noise(made, out)
    if piece.condition.do == "attack":
        from holdfast.attack.page import write as write_attack
        from holdfast.attack.run import decoded

        wanted, found = made
        return write_attack(found, decoded(wanted.plan), wanted.out / "report.html")
    if piece.condition.do == "audit":
        return _audit_page(made, line)
    return None


def _audit_page(made: Any, line: Line) -> Path:
    from holdfast.audit.cli import PAGE, write_all

    out: Path = made.plan.folder / PAGE
    write_all(made, line.gates, out)
    return out


def _shown(found: Findings, bench: Bench, out: Path | None, json: Path | None) -> int:
    from holdfast.config.output import write_json
    from holdfast.experiment.page import gates_table, results, write
    from holdfast.experiment.result import PAGE, as_plain
    from holdfast.experiment.run import experiment_folder
    from holdfast.report.tables import to_text

    say(to_text(results(found.lines, bench.experiment.title)))
    if any(line.gates for line in found.lines):
        say("\n" + to_text(gates_table(found.lines)))
    elif bench.experiment.gates:
        say("gates    not judged: --only leaves out every audit", sys.stderr)
    folder = experiment_folder(bench)
    page = write(found, folder / PAGE)
    if out is not None:
        page = write(found, out)
    if json is not None:
        write_json(json, as_plain(found))
    for line in found.lines:
        if line.state == "failed":
            say(f"failed   {line.title}: {line.words}", sys.stderr)
    say(f"run      {folder}", sys.stderr)
    say(f"report: {page.resolve()}", sys.stderr)
    return found.exit_code
