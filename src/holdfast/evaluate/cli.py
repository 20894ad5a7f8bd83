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
from holdfast.evaluate.tables import as_json, by_class, headline

if TYPE_CHECKING:
    from holdfast.evaluate.result import Evaluation
    from holdfast.evaluate.run import Plan

FILE_OPTIONS = (
    "rule", "iou", "score", "truth", "predictions", "explain", "class_", "json", "csv", "markdown", "latex",
)  # fmt: skip


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate a model on data, or predictions against truth, by a named rule.

    With no arguments but --explain: the worked example of the detection lecture.
    Exit code 4 means: done, but some images failed and are not in the numbers.
    """
    options.check_output()
    options.check_records()
    if options.class_ and not options.explain:
        raise InputError("--class names the class that --explain explains; add --explain")
    files = options.truth or options.predictions
    if options.model and options.data and not files:
        from holdfast.evaluate.run import plan_of

        return run_plan(plan_of(options), options)
    unused = [name for name in changed(options) if name not in (*FILE_OPTIONS, "model", "data")]
    if unused:
        flags = ", ".join(field_of(EvaluateOptions, name).label for name in unused)
        raise InputError(f"{flags}: of use only with MODEL DATA")
    if options.truth and options.predictions and not options.model:
        settings = options.settings()
        _show(options, score_files(options.truth, options.predictions, settings), {})
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


def tell_about(plan: Plan) -> None:
    """Print what was guessed of the model and what is wrong with the data, on standard error."""
    for reason in plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    for problem in plan.dataset.problems[:10]:
        sys.stderr.write(f"data     {problem}\n")


def run_plan(plan: Plan, options: EvaluateOptions) -> int:
    """Run the plan, show its result and return the exit code."""
    from holdfast.engine.progress import progress
    from holdfast.evaluate import explain, run
    from holdfast.evaluate.difference import difference
    from holdfast.evaluate.per_image import check_task, records_of, write_records
    from holdfast.evaluate.result import open_run

    task = plan.model.card.task
    stated = [f"--{name}" for name in ("rule", "iou", "score") if getattr(options, name) is not None]
    if stated and task != "detect":
        raise InputError(f"{', '.join(stated)}: a model to {task} has no AP")
    check_task(options, task)
    before = open_run(options.against) if options.against else None
    if options.explain and task != "detect":
        raise InputError(f"--explain walks through AP; a {task} model has none")
    if before and before.about.task != task:
        raise InputError(
            f"--against: a run to {before.about.task} has no paired difference with one to {task}"
        )
    tell_about(plan)
    if len(plan.dataset.problems) > 10:
        sys.stderr.write(
            f"data     and {len(plan.dataset.problems) - 10} more problems: holdfast data info\n"
        )
    with progress("evaluate", len(plan.dataset)) as step:
        done = run.evaluate(plan, step)
    folder = run.run_folder(plan)
    write_records(options, [records_of(done)], plan.dataset)
    _show(options, done.result, {"run": str(folder), "failed": len(done.failed)})
    more = sys.stderr if options.csv else sys.stdout
    if options.explain:
        say("\n" + explain.explain_run(done, plan.settings, options.class_), more)
    if before:
        say(f"\n{difference(before, done)}", more)
    return _ending(done, folder)


def _show(options: EvaluateOptions, result: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Print the tables, and write the numbers to a JSON file if there is one."""
    options.write_json({**as_json(result), **extra})
    if options.csv:
        return options.print_table(by_class(result, every=True, overall=True))
    options.print_table(headline(result))
    say("")
    return options.print_table(by_class(result, every=options.markdown or options.latex))


def _ending(done: Evaluation, folder: Path) -> int:
    warnings = done.result.get("warnings", ())
    for note in done.notes[:10]:
        sys.stderr.write(f"{'warning' if note in warnings else 'note':8} {note}\n")
    for failure in done.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    if done.failed:
        total = len(done.failed) + len(done.records)
        verb = "is" if len(done.failed) == 1 else "are"
        sys.stderr.write(f"{len(done.failed)} of {total} images failed and {verb} not in the numbers\n")
    sys.stderr.write(f"run      {folder} (holdfast report {shlex.quote(str(folder))} -o report.html)\n")
    return 4 if done.failed else 0
