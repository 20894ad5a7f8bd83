"""`holdfast evaluate`: a model on a dataset, two COCO files, or the lecture's example."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.options import changed, field_of
from holdfast.config.output import say
from holdfast.core.errors import InputError
from holdfast.evaluate.options import EvaluateOptions
from holdfast.evaluate.score import score_files
from holdfast.evaluate.tables import WORST, as_json, class_table, counts_table, csv_table, headline

if TYPE_CHECKING:
    from holdfast.evaluate.result import Evaluation
    from holdfast.evaluate.run import EvaluationPlan

FILE_OPTIONS = (
    "rule", "iou", "score", "truth", "predictions", "explain", "class_", "json", "csv", "markdown", "latex",
    "top", "all_classes",
)  # fmt: skip


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate a model on a dataset, or predictions against ground truth, by a named AP rule.

    --explain without other arguments prints the worked example of the detection lecture.
    Exit code 4: finished, but some images failed and are not included in the numbers.
    """
    options.check_output()
    options.check_records()
    if options.class_ and not options.explain:
        raise InputError("--class: expected with --explain; it names the class to explain")
    if options.top and options.all_classes:
        raise InputError("expected --top or --all-classes, not both")
    files = options.truth or options.predictions
    if options.model and options.data and not files:
        from holdfast.evaluate.run import evaluation_plan

        return run_plan(evaluation_plan(options), options)
    unused = [name for name in changed(options) if name not in (*FILE_OPTIONS, "model", "data")]
    if unused:
        flags = ", ".join(field_of(EvaluateOptions, name).label for name in unused)
        raise InputError(f"{flags}: expected only with MODEL DATA")
    if options.truth and options.predictions and not options.model:
        settings = options.settings()
        result = score_files(options.truth, options.predictions, settings)
        options.write_json(as_json(result))
        _print(options, result)
        if options.explain:
            from holdfast.evaluate import explain

            text = explain.explain_files(options.truth, options.predictions, settings, options.class_)
            say("\n" + text, sys.stderr if options.csv else sys.stdout)
        return 0
    if files:
        raise InputError("expected MODEL DATA, or both --truth FILE and --predictions FILE")
    if not options.explain or options.model:
        raise InputError("expected MODEL DATA, --truth with --predictions, or --explain; see --help")
    from holdfast.evaluate import explain

    text, result = explain.explain_lecture()
    options.write_json(result)
    say(text)
    return 0


def print_data_notes(plan: EvaluationPlan) -> None:
    """Print guessed properties of the model and problems of the data to standard error."""
    for reason in plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    for problem in plan.dataset.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")


def run_plan(plan: EvaluationPlan, options: EvaluateOptions) -> int:
    """Run the plan, print its result and return the exit code."""
    from holdfast.engine.progress import progress
    from holdfast.evaluate import explain, run
    from holdfast.evaluate.difference import difference
    from holdfast.evaluate.per_image import check_task, records_of, write_records
    from holdfast.evaluate.result import open_run

    task = plan.model.card.task
    stated = [f"--{name}" for name in ("rule", "iou", "score") if getattr(options, name) is not None]
    if stated and task != "detect":
        raise InputError(f"{', '.join(stated)}: only detectors have an AP; this model's task is {task}")
    check_task(options, task)
    before = open_run(options.against) if options.against else None
    if options.explain and task != "detect":
        raise InputError(f"--explain: only detectors have an AP; this model's task is {task}")
    if before and before.about.task != task:
        raise InputError(f"--against: expected a run of the task {task}, got one of {before.about.task}")
    print_data_notes(plan)
    if len(plan.dataset.problems) > 10:
        sys.stderr.write(
            f"data     {len(plan.dataset.problems) - 10} more problems; `holdfast data info` lists all\n"
        )
    with progress("evaluate", len(plan.dataset)) as step:
        done = run.evaluate(plan, step)
    folder = run.run_folder(plan)
    write_records(options, [records_of(done)], plan.dataset)
    change = difference(before, done) if before else None
    extra = {"run": str(folder), "failed": len(done.failed)}
    against = {"against": {"run": str(options.against), **change.to_plain()}} if change else {}
    options.write_json({**as_json(done.result), **extra, **against})
    _print(options, done.result)
    more = sys.stderr if options.csv else sys.stdout
    if options.explain:
        say("\n" + explain.explain_run(done, plan.settings, options.class_), more)
    if change:
        say(f"\nAgainst {options.against}: {change}.", more)
    return _finish(done, folder)


def _print(options: EvaluateOptions, result: Mapping[str, Any]) -> None:
    """Print the tables of a result."""
    if options.csv:
        return options.print_table(csv_table(result))
    top = None if options.all_classes else options.top or WORST
    classes = class_table(result, top=top, every=options.markdown or options.latex)
    tables = [table for table in (headline(result), counts_table(result), classes) if table is not None]
    for place, table in enumerate(tables):
        if place:
            say("")
        options.print_table(table)
    return None


def _finish(done: Evaluation, folder: Path) -> int:
    """Print notes and failures to standard error and return the exit code."""
    warnings = done.result.get("warnings", ())
    for note in done.notes[:10]:
        sys.stderr.write(f"{'warning' if note in warnings else 'note':8} {note}\n")
    for failure in done.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    if done.failed:
        total = len(done.failed) + len(done.records)
        verb = "is" if len(done.failed) == 1 else "are"
        sys.stderr.write(
            f"{len(done.failed)} of {total} images failed and {verb} not included in the numbers\n"
        )
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if done.failed else 0
