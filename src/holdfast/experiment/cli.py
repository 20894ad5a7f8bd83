"""`holdfast run`: an experiment from one TOML file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.config.options import Argument, Option
from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.core.errors import InputError
from holdfast.evaluate.options import RunOptions

if TYPE_CHECKING:
    from holdfast.experiment.bench import Bench, Piece
    from holdfast.experiment.result import Line

PAGES = "pages"  # of the pieces, in the experiment's folder


WRITE_TOML = r"""printf '[[model]]\npath = "signs-yolo"\n[[data]]\npath = "signs:0:8"\n[[condition]]\ndo = "evaluate"\n' > first.toml"""  # noqa: E501 - a line of a shell


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(
    RunOptions,
    command="run",
    examples=(f"{WRITE_TOML} && holdfast run first.toml", "holdfast run --schema > experiment.schema.json"),
):
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


def run(options: ExperimentOptions) -> int:
    """Run an experiment: every condition for every model on every dataset, from one TOML file.

    Paths in the file are relative to it; docs/how-to/experiments.md shows an example. Runs are resumable: the
    same command continues. Exit code 1: a gate failed. 4: a piece failed, or some images did. 2: bad input.
    """
    if options.schema:
        if options.file is not None:
            raise InputError(f"--schema is of every experiment; leave out {options.file}")
        from holdfast.experiment.plan import schema

        say(json.dumps(schema(), indent=2, ensure_ascii=False))
        return 0
    if options.file is None:
        raise InputError("expected the TOML file of an experiment, or --schema; see holdfast run --help")
    check_outputs({"--out": options.out, "--json": options.json}, {})
    from holdfast.engine.progress import progress
    from holdfast.experiment.bench import Bench
    from holdfast.experiment.plan import read_experiment

    notify = partial(say, stream=sys.stderr)
    bench = Bench(read_experiment(options.file), options.runs, options.jobs, progress, notify)
    if options.dry_run:
        from holdfast.experiment.page import plan_table
        from holdfast.experiment.run import planned
        from holdfast.report.tables import to_text

        lines = planned(bench, options.only)
        say(to_text(plan_table(lines)))
        return 4 if any(line.state == "failed" for line in lines) else 0
    return _run(bench, options)


def _page(bench: Bench, piece: Piece, result: Any, line: Line) -> Path | None:
    """The page of a finished piece; None if it has none."""
    from holdfast.engine.manifest import slug
    from holdfast.experiment.result import experiment_folder

    name = "-".join(filter(None, (line.model, line.data, line.condition)))
    out = experiment_folder(bench.experiment, bench.runs) / PAGES / f"{slug(name)}.html"
    if piece.condition.do == "evaluate":
        from holdfast.evaluate.page import pictures, write

        return write(result, out, pictures(result))
    if piece.condition.do == "noise":
        from holdfast.noise.vision.page import write as write_noise

        return write_noise(result, out)
    if piece.condition.do == "attack":
        from holdfast.attack.page import write as write_attack
        from holdfast.attack.run import decoded

        wanted, found = result
        return write_attack(found, decoded(wanted.plan), wanted.out / "report.html")
    if piece.condition.do == "audit":
        from holdfast.audit.cli import write_page

        return write_page(result, line.gates)
    return None


def _run(bench: Bench, options: ExperimentOptions) -> int:
    from holdfast.experiment.page import gates_table, results, write
    from holdfast.experiment.result import PAGE, as_plain, experiment_folder
    from holdfast.experiment.run import execute
    from holdfast.report.tables import to_text

    found = execute(
        bench,
        options.only,
        begin=lambda piece, number, of: say(f"[{number}/{of}] {piece.title}", sys.stderr),
        keep=partial(_page, bench),
        command=command_line(options),
    )
    say(to_text(results(found.lines, bench.experiment.title)))
    if any(line.gates for line in found.lines):
        say("\n" + to_text(gates_table(found.lines)))
    elif bench.experiment.gates:
        say("gates    not judged: --only leaves out every audit", sys.stderr)
    folder = experiment_folder(bench.experiment, bench.runs)
    page = write(found, folder / PAGE)
    if options.out is not None:
        page = write(found, options.out)
    if options.json is not None:
        write_json(options.json, as_plain(found))
    for line in found.lines:
        if line.state == "failed":
            say(f"failed   {line.title}: {line.words}", sys.stderr)
    say(f"run      {folder}", sys.stderr)
    say(f"report: {page.resolve()}", sys.stderr)
    return found.exit_code
