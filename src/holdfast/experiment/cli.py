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
    from holdfast.experiment.context import ExperimentContext, Trial
    from holdfast.experiment.result import TrialResult

PAGES = "pages"  # of the trials, in the experiment's folder


WRITE_TOML = r"""printf '[[model]]\npath = "signs-yolo"\n[[data]]\npath = "signs:0:8"\n[[condition]]\ndo = "evaluate"\n' > first.toml"""  # noqa: E501 - a line of a shell


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(
    RunOptions,
    command="run",
    examples=(f"{WRITE_TOML} && holdfast run first.toml", "holdfast run --schema > experiment.schema.json"),
):
    """The options of `holdfast run`."""

    file: Annotated[
        Path | None, Argument("TOML file with models, datasets and conditions.", metavar="EXPERIMENT")
    ] = None
    only: Annotated[tuple[str, ...], Option("Run only this condition. May be repeated.", metavar="NAME")] = ()
    dry_run: Annotated[
        bool, Option("Check the file, the models and the datasets, and print what would run.")
    ] = False
    schema: Annotated[bool, Option("Print the JSON schema of experiment files.")] = False
    json: Annotated[Path | None, Option("Write all results to this JSON file.")] = None
    out: Annotated[
        Path | None, Option("Also write the HTML page to this file.", short="-o", metavar="PAGE")
    ] = None


def run(options: ExperimentOptions) -> int:
    """Run an experiment from a TOML file: every condition for every model on every dataset.

    Paths in the file are relative to it; docs/how-to/experiments.md shows an example. Run the same command
    again to resume. Exit code 1: a gate failed. 2: bad input. 4: a trial failed, or some images failed.
    """
    if options.schema:
        if options.file is not None:
            raise InputError(f"--schema does not depend on a file; omit {options.file}")
        from holdfast.experiment.plan import schema

        say(json.dumps(schema(), indent=2, ensure_ascii=False))
        return 0
    if options.file is None:
        raise InputError("expected the TOML file of an experiment, or --schema; see holdfast run --help")
    check_outputs({"--out": options.out, "--json": options.json}, {})
    from holdfast.engine.executor import progress
    from holdfast.experiment.context import ExperimentContext
    from holdfast.experiment.plan import read_experiment

    notify = partial(say, stream=sys.stderr)
    context = ExperimentContext(read_experiment(options.file), options.runs, options.jobs, progress, notify)
    if options.dry_run:
        from holdfast.experiment.page import plan_table
        from holdfast.experiment.run import plan_trials
        from holdfast.report.tables import to_text

        lines = plan_trials(context, options.only)
        say(to_text(plan_table(lines)))
        return 4 if any(line.state == "failed" for line in lines) else 0
    return _run(context, options)


def _page(context: ExperimentContext, trial: Trial, result: Any, line: TrialResult) -> Path | None:
    from holdfast.engine.manifest import slug
    from holdfast.experiment.result import experiment_folder

    name = "-".join(filter(None, (line.model, line.data, line.condition)))
    out = experiment_folder(context.experiment, context.runs) / PAGES / f"{slug(name)}.html"
    if trial.condition.do == "evaluate":
        from holdfast.evaluate.page import pictures, write

        return write(result, out, pictures(result))
    if trial.condition.do == "noise":
        from holdfast.noise.vision.page import write as write_noise

        return write_noise(result, out)
    if trial.condition.do == "attack":
        from holdfast.attack.page import write as write_attack
        from holdfast.attack.run import decoded

        attack_plan, attack_result = result
        return write_attack(attack_result, decoded(attack_plan.plan), attack_plan.out / "report.html")
    if trial.condition.do == "audit":
        from holdfast.audit.cli import write_page

        return write_page(result, line.gates)
    return None


def _run(context: ExperimentContext, options: ExperimentOptions) -> int:
    from holdfast.experiment.page import gates_table, next_step, results, write
    from holdfast.experiment.result import PAGE, as_plain, experiment_folder
    from holdfast.experiment.run import execute
    from holdfast.report.tables import to_text

    result = execute(
        context,
        options.only,
        begin=lambda trial, number, of: say(f"[{number}/{of}] {trial.title}", sys.stderr),
        keep=partial(_page, context),
        command=command_line(options),
    )
    say(to_text(results(result.results, context.experiment.title)))
    say(f"Next: {next_step(result)}")
    if any(line.gates for line in result.results):
        say("\n" + to_text(gates_table(result.results)))
    elif context.experiment.gates:
        say("gates    not judged: --only skips every audit", sys.stderr)
    folder = experiment_folder(context.experiment, context.runs)
    page = write(result, folder / PAGE)
    if options.out is not None:
        page = write(result, options.out)
    if options.json is not None:
        write_json(options.json, as_plain(result))
    for line in result.results:
        if line.state == "failed":
            say(f"failed   {line.title}: {line.notes}", sys.stderr)
    say(f"run      {folder}", sys.stderr)
    say(f"report: {page.resolve()}", sys.stderr)
    return result.exit_code
